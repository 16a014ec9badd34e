use serde_json::json;

use super::{Document, markdown};
use crate::block::Block;

/// `content`, the document as markdown, `metadata`, `blocks` and `pages`.
pub(super) fn document(document: &Document) -> String {
    let blocks: Vec<_> = document.blocks.iter().map(Block::public).collect();
    let whole = json!({
        "content": markdown::blocks(&document.blocks),
        "metadata": document.metadata,
        "blocks": blocks,
        "pages": document.pages,
    });
    whole.to_string()
}
