//! Why a document gave no text.

use serde::{Deserialize, Serialize};

/// Its message says the problem, the cause and the remedy, and nothing of the document's content or the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Failure {
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// No engine reads this type.
    #[error("files of type {mime_type} are not supported: GET /api/v1/formats lists the types that are")]
    Unsupported {
        /// Detected type of the bytes.
        mime_type: String,
    },
    /// It has no pages that can be made searchable.
    #[error("no searchable PDF is made of files of type {mime_type}: send a PDF or a picture")]
    NoPages {
        /// Detected type of the bytes.
        mime_type: String,
    },
    /// The engine that was asked for does not read this type.
    #[error("the engine {engine} does not read files of type {mime_type}: leave extraction_engine at auto")]
    WrongEngine {
        /// That engine.
        engine: String,
        /// Detected type of the bytes.
        mime_type: String,
    },
    /// Something is not installed, not configured, or does not answer.
    #[error("{message}")]
    Unavailable {
        /// States the limit and what to do.
        message: String,
    },
    /// The language is not one of those that can be recognised.
    #[error("language {language} cannot be recognised: supported are {}", supported.join(", "))]
    Language {
        /// That was asked for.
        language: String,
        /// That are installed.
        supported: Vec<String>,
    },
    /// The file is damaged, truncated, or not what it claims to be.
    #[error("{message}")]
    Corrupt {
        /// States the fault.
        message: String,
    },
    /// A password is needed.
    #[error("the file is encrypted: remove its password and send it again")]
    Encrypted,
    /// More than is allowed would have been needed.
    #[error("{message}")]
    TooMuch {
        /// Of what.
        message: String,
    },
    /// It took too long.
    #[error("the time limit of {seconds} s was reached: {advice}")]
    Timeout {
        /// The limit.
        seconds: u64,
        /// The remedy.
        advice: String,
    },
    /// The parser crashed on the document.
    #[error("the document made its parser fail, which harmed nothing else: it is probably damaged")]
    Crash,
}

/// Stable words for failures, as jobs and answers show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum FailureCode {
    EmptyFile,
    UnsupportedType,
    WrongEngine,
    Unavailable,
    UnsupportedLanguage,
    CorruptFile,
    EncryptedFile,
    LimitExceeded,
    TimeLimit,
    ParserFailed,
}

impl FailureCode {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EmptyFile => "empty_file",
            Self::UnsupportedType => "unsupported_type",
            Self::WrongEngine => "wrong_engine",
            Self::Unavailable => "unavailable",
            Self::UnsupportedLanguage => "unsupported_language",
            Self::CorruptFile => "corrupt_file",
            Self::EncryptedFile => "encrypted_file",
            Self::LimitExceeded => "limit_exceeded",
            Self::TimeLimit => "time_limit",
            Self::ParserFailed => "parser_failed",
        }
    }
}

impl Failure {
    /// The stable word for it.
    pub fn code(&self) -> &'static str {
        let code = match self {
            Self::Empty => FailureCode::EmptyFile,
            Self::Unsupported { .. } | Self::NoPages { .. } => FailureCode::UnsupportedType,
            Self::WrongEngine { .. } => FailureCode::WrongEngine,
            Self::Unavailable { .. } => FailureCode::Unavailable,
            Self::Language { .. } => FailureCode::UnsupportedLanguage,
            Self::Corrupt { .. } => FailureCode::CorruptFile,
            Self::Encrypted => FailureCode::EncryptedFile,
            Self::TooMuch { .. } => FailureCode::LimitExceeded,
            Self::Timeout { .. } => FailureCode::TimeLimit,
            Self::Crash => FailureCode::ParserFailed,
        };
        code.as_str()
    }

    /// Nothing came within `seconds`; `advice` says what to do.
    pub(crate) fn timeout(seconds: u64, advice: &str) -> Self {
        Self::Timeout { seconds, advice: advice.to_owned() }
    }

    /// A file that is damaged in the way that `message` says.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::Corrupt { message: message.into() }
    }

    /// More than is allowed, of what `message` says.
    pub fn too_much(message: impl Into<String>) -> Self {
        Self::TooMuch { message: message.into() }
    }

    /// Its bytes did not come whole from where they were kept.
    pub(crate) fn unreadable() -> Self {
        Self::unavailable("the document could not be read from disk: send it again")
    }

    /// Something that does not work here and now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into() }
    }
}
