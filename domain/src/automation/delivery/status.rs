use serde::{Deserialize, Serialize};

/// State of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryStatus {
    /// No attempt of this round has ended.
    Pending,
    Delivered,
    /// Another attempt follows.
    Failed,
    /// No attempt follows.
    DeadLetter,
}

impl DeliveryStatus {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::DeadLetter => "dead_letter",
        }
    }
}
