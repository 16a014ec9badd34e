use super::{Body, Engine, Input, Reading, native::html};
use crate::{detect, failure::Failure, ocr::Recognition};

/// Names of Tika's metadata, and ours.
const NAMES: [(&str, &str); 4] = [
    ("dc:title", "title"),
    ("dc:creator", "author"),
    ("dc:subject", "subject"),
    ("content-type", "content_type"),
];
/// Tika's key for the number of pages.
const PAGES: &str = "xmptpg:npages";

/// Reads what a Tika server made of a document.
pub(crate) struct TikaPageEngine;

impl Engine for TikaPageEngine {
    fn name(&self) -> &'static str {
        "tika"
    }

    fn mime_types(&self) -> &'static [&'static str] {
        &[detect::TIKA_PAGE]
    }

    fn read(&self, input: Input, _: &mut Recognition<'_>) -> Result<Reading, Failure> {
        let page = html::read_with_meta(&String::from_utf8_lossy(&input.bytes))?;
        let mut reading = Reading { body: Body::Blocks(page.content.blocks), ..Reading::default() };
        for (name, value) in page.meta {
            let known = NAMES.iter().find(|(theirs, _)| *theirs == name);
            if let Some((_, ours)) = known {
                // The first of several, and of a type what it is without its parameters.
                let value = if *ours == "content_type" {
                    value.split(';').next().unwrap_or_default()
                } else {
                    &value
                };
                reading.metadata.entry((*ours).to_owned()).or_insert_with(|| value.trim().into());
            } else if name == PAGES
                && let Ok(pages) = value.parse::<usize>()
            {
                reading.metadata.insert("page_count".to_owned(), pages.into());
                reading.metadata.insert("pages".to_owned(), pages.into());
            }
        }
        Ok(reading)
    }
}
