use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use signalbox_domain::kernel::UserId;
use tokio_util::sync::CancellationToken;

/// The newest back-test of an unsaved rule of each admin at this gateway: a form asks faster than months of values are read.
#[derive(Debug, Default)]
pub(crate) struct Backtests(Mutex<HashMap<UserId, CancellationToken>>);

impl Backtests {
    /// Cancels the older back-test of `user`; the token is cancelled by the next one.
    pub(crate) fn begin(&self, user: UserId) -> CancellationToken {
        let token = CancellationToken::new();
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(older) = newest.insert(user, token.clone()) {
            older.cancel();
        }
        token
    }
}
