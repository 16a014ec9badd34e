use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The permissions of a user; each role includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads only.
    Viewer,
    /// Reads and writes own resources.
    #[serde(alias = "user")]
    Operator,
    /// Everything, users and agents included.
    Admin,
}

impl Role {
    /// The role's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no role.
#[derive(Debug, thiserror::Error)]
#[error("role must be admin, operator or viewer")]
pub struct InvalidRole;

impl FromStr for Role {
    type Err = InvalidRole;

    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        match text {
            "viewer" => Ok(Self::Viewer),
            "operator" | "user" => Ok(Self::Operator),
            "admin" => Ok(Self::Admin),
            _ => Err(InvalidRole),
        }
    }
}
