use std::path::PathBuf;

/// Why a PDF cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PdfError {
    /// The library cannot be loaded.
    #[error("the PDF library {path} cannot be loaded: {reason}")]
    Library {
        /// Where it was looked for.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// The bytes are no PDF, or one that is damaged beyond repair.
    #[error("the file is not a readable PDF: it is damaged or truncated")]
    Damaged,
    /// A password is needed.
    #[error("the PDF is encrypted: remove its password and send it again")]
    Encrypted,
    /// A page cannot be read.
    #[error("page {0} of the PDF cannot be read")]
    Page(usize),
    /// A page cannot be drawn.
    #[error("page {0} of the PDF cannot be drawn")]
    Draw(usize),
    /// Words cannot be put over its pages.
    #[error("no text can be added to the PDF: it is damaged")]
    Layer,
    /// With its text it is larger than is allowed.
    #[error("the PDF with its text is too large: split it")]
    Large,
}
