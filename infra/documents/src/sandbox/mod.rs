//! Every document is parsed in a process of its own kind: limited, without network, replaced when it dies.

mod child;
mod frames;
mod pool;
mod restrict;
mod worker;

use serde::{Deserialize, Serialize};

pub use child::run as run_child;
pub(crate) use pool::{Job, Pool, PoolOptions};
pub use pool::{PoolError, Progress};

use crate::{
    engines::Places,
    extraction::Parsed,
    failure::Failure,
    ocr::Recognised,
    options::Options,
    reader::{Abilities, Limits},
};

/// The first message to a child.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    places: Places,
    limits: Limits,
}

/// What the parent says.
#[derive(Debug, Serialize, Deserialize)]
enum ToChild {
    /// Read the document whose bytes follow.
    Read {
        name: String,
        mime_type: Option<String>,
        options: Options,
        remote_languages: Vec<String>,
        bytes: u64,
    },
    /// The answer to a picture.
    Words(Result<Recognised, Failure>),
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
enum FromChild {
    /// Limits hold; these are the abilities.
    Ready(Abilities),
    Progress {
        done: usize,
        all: usize,
    },
    /// Recognise the picture whose pixels follow.
    Picture {
        page: usize,
        width: u32,
        height: u32,
        dpi: u32,
    },
    Done(Box<Parsed>),
    Failed(Failure),
}
