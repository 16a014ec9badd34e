use std::sync::Arc;

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{Output, ParamsString, PasswordHash, Salt},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Logins that may wait for a place; more are turned away.
const MAX_WAITING: usize = 256;
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

/// Argon2id with OWASP's parameters (19 MiB, 2 passes), off the async threads and bounded.
#[derive(Debug, Clone)]
pub struct Passwords {
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// A hash of nothing, checked for unknown users, so that they take as long as known ones.
    decoy: Arc<str>,
}

impl Passwords {
    /// At most `concurrent` at the same time.
    ///
    /// # Errors
    /// [`HashError::Failed`] when the machine has no randomness.
    pub fn new(concurrent: usize) -> Result<Self, HashError> {
        Ok(Self {
            places: Arc::new(Semaphore::new(concurrent.max(1))),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            decoy: hash("").map_err(HashError::Failed)?.into(),
        })
    }

    /// The PHC string of `password`.
    ///
    /// # Errors
    /// [`HashError`].
    pub async fn hash(&self, password: String) -> Result<String, HashError> {
        self.run(move || hash(&password)).await
    }

    /// Whether `password` fits `stored`; without `stored`, or with none in it, it takes as long and is false.
    ///
    /// # Errors
    /// [`HashError`].
    pub async fn verify(&self, password: String, stored: Option<String>) -> Result<bool, HashError> {
        let stored = stored.filter(|stored| !stored.is_empty());
        let known = stored.is_some();
        let stored = stored.unwrap_or_else(|| self.decoy.to_string());
        let fits = self.run(move || Ok(fits(&password, &stored))).await?;
        Ok(fits && known)
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, HashError> {
        let _waiting = self.waiting.try_acquire().map_err(|_| HashError::Busy)?;
        let _place = self.places.acquire().await.map_err(|_| HashError::Busy)?;
        spawn_blocking(work)
            .await
            .map_err(|error| HashError::Failed(error.to_string()))?
            .map_err(HashError::Failed)
    }
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

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_fits() {
        let passwords = Passwords::new(1).unwrap();
        let stored = passwords.hash("right".into()).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(passwords.verify("right".into(), Some(stored.clone())).await.unwrap());
        assert!(!passwords.verify("wrong".into(), Some(stored)).await.unwrap());
        assert!(!passwords.verify(String::new(), None).await.unwrap());
        assert!(!passwords.verify(String::new(), Some(String::new())).await.unwrap());
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
