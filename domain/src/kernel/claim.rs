use serde::{Deserialize, Serialize};

/// The effect of an event on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimOp {
    /// The key must be free and is taken.
    Take,
    /// The key is released.
    Release,
    /// The key is released, but another key of the kind must remain (the last admin stays).
    ReleaseNotLast,
    /// The key must be taken (a referenced aggregate exists).
    Require,
    /// No key of the kind may be taken (nothing refers to it any more).
    RequireNone,
}

/// A constraint that a single aggregate cannot check; it is checked when the event is appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
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
