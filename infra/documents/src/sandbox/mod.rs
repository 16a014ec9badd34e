//! Every document is parsed in a process of its own: limited, without network, ended afterwards.

mod child;
mod fair;
mod frames;
mod job;
mod pool;
mod restrict;
mod worker;

use serde::{Deserialize, Serialize};

pub use child::run as run_child;
pub use fair::{FairPlaces, Full, Place, Share, Sizes};
pub use job::Progress;
pub(crate) use job::{Job, Output, PoolOptions, Purpose};
pub(crate) use pool::Pool;
pub use pool::PoolError;

use crate::{
    engines::Places,
    extraction::{Parsed, Searchable},
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

/// A message of the parent.
#[derive(Debug, Serialize, Deserialize)]
enum ToChild {
    /// Read the document whose bytes follow.
    Read {
        name: String,
        mime_type: Option<String>,
        options: Options,
        remote_languages: Vec<String>,
        /// Answer with a PDF in place of the text.
        as_pdf: bool,
        bytes: u64,
    },
    /// Draw a page of the document whose bytes follow.
    Draw {
        name: String,
        /// From 1.
        page: usize,
        /// Pixels.
        width: u32,
        bytes: u64,
    },
    /// The words on the pictures since the last answer.
    Words(Result<Vec<Recognised>, Failure>),
    /// The answer to [`FromChild::Admit`].
    Admitted(Result<(), Failure>),
}

/// A message of a child.
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
    /// This process is about to recognise pages itself, which takes long; it waits for the answer.
    Admit,
    Done(Box<Parsed>),
    /// A PDF whose recognised words can be found, whose bytes follow.
    Searchable {
        made: Searchable,
        bytes: u64,
    },
    /// The picture of the page, a PNG, whose bytes follow; none if there is no such page.
    Drawn {
        bytes: Option<u64>,
    },
    Failed(Failure),
}
