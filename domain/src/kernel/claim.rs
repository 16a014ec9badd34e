use serde::{Deserialize, Serialize};

/// What an event does to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimOp {
    /// The key must be free and is taken.
    Take,
    /// The key is given back.
    Release,
    /// The key is given back, but another key of the kind must remain (the last admin stays).
    ReleaseNotLast,
    /// The key must be taken (a referenced aggregate exists).
    Require,
    /// No key of the kind may be taken (nothing refers to it any more).
    RequireNone,
}

/// A system-wide fact that one aggregate alone cannot guard, checked when its event is appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// What happens to the key.
    pub op: ClaimOp,
    /// Name space of the key, e.g. `user.email`.
    pub kind: String,
    /// The claimed value; empty for [`ClaimOp::RequireNone`].
    pub key: String,
}

impl Claim {
    /// A claim of `op` on `key` within `kind`.
    pub fn new(op: ClaimOp, kind: impl Into<String>, key: impl Into<String>) -> Self {
        Self { op, kind: kind.into(), key: key.into() }
    }
}
