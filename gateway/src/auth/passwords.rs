use std::sync::Arc;

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Logins that may wait for a place; more are turned away.
const MAX_WAITING: usize = 256;

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

    /// Whether `password` fits `stored`; without `stored` it takes as long and is false.
    ///
    /// # Errors
    /// [`HashError`].
    pub async fn verify(&self, password: String, stored: Option<String>) -> Result<bool, HashError> {
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
    let hashed = Argon2::default().hash_password(password.as_bytes());
    hashed.map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

fn fits(password: &str, stored: &str) -> bool {
    PasswordHash::new(stored)
        .is_ok_and(|stored| Argon2::default().verify_password(password.as_bytes(), &stored).is_ok())
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
    }
}
