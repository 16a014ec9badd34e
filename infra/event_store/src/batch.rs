use std::collections::HashSet;

use signalbox_domain::kernel::{Claim, ClaimOp};
use uuid::Uuid;

use crate::request::Append;

/// Most commands of one transaction; more would only delay the first one.
pub(crate) const MAX_COMMANDS: usize = 256;

/// Appends that share a transaction because none of them can influence the outcome of another.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) appends: Vec<Append>,
    commands: HashSet<Uuid>,
    streams: HashSet<(&'static str, Uuid)>,
    written: HashSet<(String, String)>,
    written_kinds: HashSet<String>,
    read: HashSet<(String, String)>,
    read_kinds: HashSet<String>,
}

impl Batch {
    pub(crate) fn is_full(&self) -> bool {
        self.appends.len() >= MAX_COMMANDS
    }

    /// A batch of one.
    pub(crate) fn of(append: Append) -> Self {
        Self { appends: vec![append], ..Self::default() }
    }

    /// Takes `append` in, or returns it when it has to wait for the next transaction.
    pub(crate) fn add(&mut self, append: Append) -> Result<(), Box<Append>> {
        let fits = !self.commands.contains(&append.command_id)
            && !self.streams.contains(&(append.aggregate_type, append.aggregate_id))
            && append.claims.iter().all(|claim| self.is_independent(claim));
        if !fits {
            return Err(Box::new(append));
        }
        self.commands.insert(append.command_id);
        self.streams.insert((append.aggregate_type, append.aggregate_id));
        for claim in &append.claims {
            self.note(claim);
        }
        self.appends.push(append);
        Ok(())
    }

    fn is_independent(&self, claim: &Claim) -> bool {
        let key = (claim.kind.clone(), claim.key.clone());
        let write_is_free = || {
            !self.written.contains(&key)
                && !self.read.contains(&key)
                && !self.read_kinds.contains(&claim.kind)
        };
        match claim.op {
            ClaimOp::Take | ClaimOp::Release => write_is_free(),
            ClaimOp::Require => !self.written.contains(&key),
            ClaimOp::RequireNone => !self.written_kinds.contains(&claim.kind),
            ClaimOp::ReleaseNotLast => write_is_free() && !self.written_kinds.contains(&claim.kind),
        }
    }

    fn note(&mut self, claim: &Claim) {
        let key = || (claim.kind.clone(), claim.key.clone());
        if matches!(claim.op, ClaimOp::Take | ClaimOp::Release | ClaimOp::ReleaseNotLast) {
            self.written.insert(key());
            self.written_kinds.insert(claim.kind.clone());
        }
        if claim.op == ClaimOp::Require {
            self.read.insert(key());
        }
        if matches!(claim.op, ClaimOp::RequireNone | ClaimOp::ReleaseNotLast) {
            self.read_kinds.insert(claim.kind.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;

    fn append(stream: u128, claims: Vec<Claim>) -> Append {
        Append {
            command_id: Uuid::from_u128(stream + 1000),
            aggregate_type: "user",
            aggregate_id: Uuid::from_u128(stream),
            expected: 0,
            metadata: json!({}),
            events: Vec::new(),
            claims,
            reply: oneshot::channel().0,
        }
    }

    fn claim(op: ClaimOp, key: &str) -> Vec<Claim> {
        vec![Claim::new(op, "kind", key)]
    }

    fn fit_together(first: Vec<Claim>, second: Vec<Claim>) -> bool {
        let mut batch = Batch::default();
        assert!(batch.add(append(1, first)).is_ok());
        batch.add(append(2, second)).is_ok()
    }

    #[test]
    fn a_stream_is_written_once_per_batch() {
        let mut batch = Batch::default();
        assert!(batch.add(append(1, vec![])).is_ok());
        assert!(batch.add(append(1, vec![])).is_err());
        assert!(batch.add(append(2, vec![])).is_ok());
    }

    #[test]
    fn readers_of_one_key_go_together_writers_do_not() {
        use ClaimOp::{Release, Require, Take};
        assert!(fit_together(claim(Require, "a"), claim(Require, "a")));
        assert!(fit_together(claim(Take, "a"), claim(Take, "b")));
        assert!(!fit_together(claim(Take, "a"), claim(Take, "a")));
        assert!(!fit_together(claim(Require, "a"), claim(Release, "a")));
        assert!(!fit_together(claim(Take, "a"), claim(Require, "a")));
    }

    #[test]
    fn two_admins_cannot_leave_in_one_batch() {
        use ClaimOp::{ReleaseNotLast, RequireNone, Take};
        assert!(!fit_together(claim(ReleaseNotLast, "a"), claim(ReleaseNotLast, "b")));
        assert!(!fit_together(claim(Take, "a"), claim(RequireNone, "")));
        assert!(!fit_together(claim(RequireNone, ""), claim(Take, "a")));
    }
}
