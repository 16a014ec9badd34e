//! The text of a document in the parts that are searched.

use serde::{Deserialize, Serialize};

/// The text of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// From 1; none for a document without pages.
    pub page: Option<usize>,
    /// Of its first place on the page: left, top, right and bottom in points from the left upper corner.
    pub bbox: Option<[f64; 4]>,
    /// Without markup.
    pub text: String,
}
