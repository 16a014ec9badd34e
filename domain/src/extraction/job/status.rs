use serde::{Deserialize, Serialize};

/// Status of an extraction job for users. The last three are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExtractionStatus {
    Queued,
    Processing,
    Completed,
    Failed,
    Cancelled,
}

impl ExtractionStatus {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}
