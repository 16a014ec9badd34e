use serde_json::json;

use super::{Document, chunks, markdown};
use crate::block::Block;

/// `content`, the document as markdown, `metadata`, `blocks` and `pages`; `chunks` if they were asked for.
pub(super) fn document(document: &Document) -> String {
    let blocks: Vec<_> = document.blocks.iter().map(Block::public).collect();
    let mut whole = json!({
        "content": markdown::blocks(&document.blocks),
        "metadata": document.metadata,
        "blocks": blocks,
        "pages": document.pages,
    });
    if let Some(limit) = document.chunk_words {
        whole["chunks"] = json!(chunks::of(&document.blocks, limit));
    }
    whole.to_string()
}
