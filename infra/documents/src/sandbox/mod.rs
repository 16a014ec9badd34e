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
    /// What is on the pictures since the last answer.
    Words(Result<Vec<Recognised>, Failure>),
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
    /// A picture, whose pixels follow.
    Picture {
        page: usize,
        width: u32,
        height: u32,
        dpi: u32,
    },
    /// Recognise the pictures.
    Recognise,
    Done(Box<Parsed>),
    Failed(Failure),
}
