use signalbox_boxed::boxed;
use std::{ops::RangeInclusive, thread};

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{Output, ParamsString, PasswordHash, Salt},
};
use signalbox_confinement::run_in_idle_time;
use tokio::{sync::oneshot, task::spawn_blocking};

use super::turns::Turns;
use crate::http::network::Network;

/// Bytes. The C library keeps freed memory of up to 32 MiB for itself, and gives back at once what was larger; of what is
/// asked for beyond the need, no page is ever touched.
const LARGE: usize = 40 << 20;

/// Why a password could not be hashed or checked.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// Too many at the same time.
    #[error("too many logins at the same time: try again in a moment")]
    Busy,
    /// The hash function failed.
    #[error("the password cannot be hashed: {0}")]
    Failed(String),
}

/// Checked for unknown users, so that they take as long as known ones; random bytes, which fit no password.
const DECOY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2lnbmFsYm94IGRlY295$DJGcFaLGd/UhBRnQNbTGDhzMNdYvN6KFqctek/KeSSQ";

/// Argon2id with OWASP's parameters (19 MiB, 2 passes), off the async threads and bounded.
#[derive(Debug, Clone)]
pub struct Passwords {
    turns: Turns,
}

impl Passwords {
    /// At most `concurrent` at the same time.
    #[must_use]
    pub fn new(concurrent: usize) -> Self {
        Self { turns: Turns::new(concurrent) }
    }

    /// The PHC string of `password`.
    ///
    /// # Errors
    /// [`HashError`].
    #[boxed]
    pub async fn hash(&self, password: String) -> Result<String, HashError> {
        self.run(None, move || hash(&password)).await
    }

    /// Whether `password` fits `stored`; without `stored`, or with none in it, it takes as long and is false. The more of
    /// those from `network` did not fit of late, the longer it waits; `None` is for a user who is logged in.
    ///
    /// # Errors
    /// [`HashError`].
    pub(crate) async fn verify(
        &self,
        password: String,
        stored: Option<String>,
        network: Option<Network>,
    ) -> Result<bool, HashError> {
        let stored = stored.filter(|stored| !stored.is_empty());
        let known = stored.is_some();
        let stored = stored.unwrap_or_else(|| DECOY.to_owned());
        let fits = known & self.run(network, move || Ok(fits(&password, &stored))).await?;
        if let Some(network) = network.filter(|_| !fits) {
            self.turns.note_failure(network);
        }
        Ok(fits)
    }

    async fn run<T: Send + 'static>(
        &self,
        network: Option<Network>,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, HashError> {
        let turn = self.turns.take(network).await.map_err(|_| HashError::Busy)?;
        if turn.is_guesser() {
            return run_aside(work).await;
        }
        spawn_blocking(work)
            .await
            .map_err(|error| HashError::Failed(error.to_string()))?
            .map_err(HashError::Failed)
    }
}

/// Runs `work` in idle time, in a thread of its own: a thread that has given way cannot take its priority back.
async fn run_aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, HashError> {
    let (sender, result) = oneshot::channel();
    let thread = thread::Builder::new().name("guessed password".to_owned());
    let started = thread.spawn(move || {
        // A failure is harmless.
        let _ = run_in_idle_time(None);
        // Without a receiver, the request has ended.
        let _ = sender.send(work());
    });
    started.map_err(|error| HashError::Failed(error.to_string()))?;
    let result = result.await.map_err(|error| HashError::Failed(error.to_string()))?;
    result.map_err(HashError::Failed)
}

/// Why a new password is refused; follows the name of the field or setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeakPassword {
    /// Too short or too long.
    #[error("must be 8 to 256 characters long")]
    Length,
    /// It stands in an example of ours.
    #[error("must not be an example's: choose another one")]
    Example,
}

/// Passwords that our examples of settings show, which everybody knows.
const EXAMPLES: [&str; 1] = ["choose-one"];

/// Characters of a new password.
pub(crate) const PASSWORD: RangeInclusive<usize> = 8..=256;

/// Checks a new password.
///
/// # Errors
/// [`WeakPassword`].
pub fn check_new_password(password: &str) -> Result<(), WeakPassword> {
    if !PASSWORD.contains(&password.chars().count()) {
        return Err(WeakPassword::Length);
    }
    let is_example = EXAMPLES.iter().any(|example| example.eq_ignore_ascii_case(password.trim()));
    if is_example { Err(WeakPassword::Example) } else { Ok(()) }
}

fn hash(password: &str) -> Result<String, String> {
    let (algorithm, version, params) = (Algorithm::default(), Version::default(), Params::default());
    let salt = Salt::generate();
    let hash = PasswordHash {
        algorithm: algorithm.ident(),
        version: Some(version.into()),
        params: ParamsString::try_from(&params).map_err(|error| error.to_string())?,
        hash: Some(output(password, &salt, algorithm, version, params).map_err(|error| error.to_string())?),
        salt: Some(salt),
    };
    Ok(hash.to_string())
}

fn fits(password: &str, stored: &str) -> bool {
    let Ok(stored) = PasswordHash::new(stored) else { return false };
    let (Some(salt), Some(expected)) = (&stored.salt, &stored.hash) else { return false };
    let (Ok(algorithm), Ok(params)) =
        (Algorithm::try_from(stored.algorithm.as_str()), Params::try_from(&stored))
    else {
        return false;
    };
    let version = stored.version.map_or(Ok(Version::default()), Version::try_from);
    // Outputs are compared in constant time.
    version.is_ok_and(|version| {
        output(password, salt, algorithm, version, params).is_ok_and(|output| output == *expected)
    })
}

fn output(
    password: &str,
    salt: &Salt,
    algorithm: Algorithm,
    version: Version,
    params: Params,
) -> Result<Output, argon2::Error> {
    let mut memory = Vec::with_capacity(LARGE / size_of::<Block>());
    memory.resize(params.block_count(), Block::default());
    let mut output = [0; Params::DEFAULT_OUTPUT_LEN];
    Argon2::new(algorithm, version, params).hash_password_into_with_memory(
        password.as_bytes(),
        salt,
        &mut output,
        &mut memory,
    )?;
    Output::new(&output).map_err(|_| argon2::Error::OutputTooShort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_takes_as_long_as_a_known_one() {
        let (ours, decoy) = (hash("right").unwrap(), PasswordHash::new(DECOY).unwrap());
        let ours = PasswordHash::new(&ours).unwrap();
        assert_eq!(
            (decoy.algorithm, decoy.version, &decoy.params),
            (ours.algorithm, ours.version, &ours.params)
        );
        assert_eq!(decoy.hash.unwrap().len(), ours.hash.unwrap().len());
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_fits() {
        let passwords = Passwords::new(1);
        let stored = passwords.hash("right".into()).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(passwords.verify("right".into(), Some(stored.clone()), None).await.unwrap());
        assert!(!passwords.verify("wrong".into(), Some(stored), None).await.unwrap());
        assert!(!passwords.verify(String::new(), None, None).await.unwrap());
        assert!(!passwords.verify(String::new(), Some(String::new()), None).await.unwrap());
    }

    #[test]
    fn the_password_of_an_example_is_refused() {
        let settings = include_str!("../../../../deploy/signalbox.env");
        let example =
            settings.lines().find_map(|line| line.strip_prefix("SIGNALBOX_ADMIN_PASSWORD=")).unwrap();
        assert_eq!(check_new_password(example), Err(WeakPassword::Example));
        assert_eq!(check_new_password("Choose-One "), Err(WeakPassword::Example));
        assert_eq!(check_new_password("short"), Err(WeakPassword::Length));
        assert_eq!(check_new_password("long enough"), Ok(()));
    }

    #[test]
    fn the_librarys_own_strings_are_understood_both_ways() {
        use argon2::{PasswordHasher, PasswordVerifier};
        let theirs = Argon2::default().hash_password(b"right").unwrap().to_string();
        assert!(fits("right", &theirs) && !fits("wrong", &theirs));
        let ours = hash("right").unwrap();
        assert!(Argon2::default().verify_password(b"right", ours.as_str()).is_ok());
        assert!(!fits("right", "") && !fits("right", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ"));
    }
}
