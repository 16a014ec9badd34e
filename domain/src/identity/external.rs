use serde::{Deserialize, Serialize};

use crate::kernel::{Claim, ClaimOp, Rejection, required_text};

pub(super) const IDENTITY_CLAIM: &str = "user.identity";

/// A user's identity at an OpenID provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalIdentity {
    /// Display name of the provider.
    pub provider: String,
    /// The provider's `iss`.
    pub issuer: String,
    /// The user's `sub` there, compared byte by byte.
    pub subject: String,
}

impl ExternalIdentity {
    /// Whether both are the same person at the same provider, whatever that is called.
    pub fn is_same(&self, other: &Self) -> bool {
        self.issuer == other.issuer && self.subject == other.subject
    }

    /// Checks that all fields are there and of bounded length. Issuers and subjects are ASCII by the standard.
    pub(super) fn check(&self) -> Result<(), Rejection> {
        required_text("provider", &self.provider, 100)?;
        for (name, text, max) in [("issuer", &self.issuer, 500), ("subject", &self.subject, 255)] {
            if required_text(name, text, max)? != *text || !text.is_ascii() {
                return Err(Rejection::field(name, "must be ASCII without white space at its ends"));
            }
        }
        Ok(())
    }

    /// Reserves the identity for one user. An issuer contains no space, so the key is unambiguous.
    pub(super) fn claim(&self, op: ClaimOp) -> Claim {
        Claim::new(op, IDENTITY_CLAIM, format!("{} {}", self.issuer, self.subject))
    }
}
