use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Secret;

/// Documents: the engines that read them, and the limits of one document.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Extraction {
    /// Whether a login or token is needed.
    pub require_auth: bool,
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Processes that parse; 0 for one per core.
    pub parsers: usize,
    /// Jobs that have not ended.
    pub max_open_jobs: u32,
    /// Hours that the text of a job is kept.
    pub result_hours: u32,
    /// Hours that the document of a job is kept after its end.
    pub input_hours: u32,
    /// Most that is kept for one user by `keep`, in MiB.
    pub kept_mb_each: u32,
    /// Hours that a text answers for the same document; 0 for not at all.
    pub cache_hours: u32,
    /// Texts that do so, in MiB.
    pub cache_mb: u32,
    /// Most that is kept for callers without a login, in MiB.
    pub anonymous_mb: u32,
    /// Of that, for one address or IPv6 /64.
    pub anonymous_mb_each: u32,
    /// Seconds that a document may wait for one of them.
    pub patience_seconds: u64,
    /// Address space of such a process, in MiB.
    pub memory_mb: u64,
    /// Time on the processor for one document, in seconds.
    pub cpu_seconds: u64,
    /// Time on the clock for one document, in seconds.
    pub wall_seconds: u64,
    /// Pages of a document.
    pub max_pages: usize,
    /// Pixels of a picture, in millions.
    pub max_megapixels: u32,
    /// Path of libpdfium.so; empty to search for it.
    pub pdfium: String,
    /// Folder of Tesseract's language data; empty to search for it.
    pub tessdata: String,
    /// Address of an Apache Tika server; empty disables it.
    pub tika_url: String,
    /// Time limit of Tika for a document, in seconds.
    pub tika_seconds: u64,
    /// Address of Google Cloud Vision.
    pub google_vision_url: String,
    /// API key of Google Vision; empty disables it.
    pub google_vision_key: Secret,
    /// Time limit for a page, in seconds.
    pub google_vision_seconds: u64,
    /// Address of an OpenAI-compatible service, up to and with its version; empty disables it.
    pub llm_url: String,
    /// Its key, if it needs one.
    pub llm_key: Secret,
    pub llm_model: String,
    /// Time limit for a piece of a document, in seconds.
    pub llm_seconds: u64,
    /// Letters of such a piece, about: pieces end between blocks.
    pub llm_piece_letters: usize,
}

impl Extraction {
    /// How long a document may wait for a parser.
    #[must_use]
    pub fn queue_timeout(&self) -> Duration {
        Duration::from_secs(self.patience_seconds)
    }
}
