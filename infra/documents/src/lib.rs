//! Documents become text: markdown, JSON or plain text with headings, lists, tables and paragraphs, from digital and
//! scanned PDFs, pictures, office files, web pages, mails and books.
//!
//! The path of a document: a pool of child processes, each limited and without network, has it read by an engine
//! that is chosen by what the bytes are; pages without text are recognised; layout analysis turns words with places into
//! [blocks](block); processors clean them; a writer turns them into text. A document that crashes, hangs or explodes its
//! parser fails alone, with a [`Failure`] that says why.
//!
//! The program that a pool starts has to call [`run_child`]. Services in the network (a Tika server, a recognising
//! service, a language model) are called by the parent.

pub mod block;
mod cleanup;
mod crooked;
mod detect;
mod encoding;
mod engines;
mod extraction;
mod failure;
pub mod layout;
mod locate;
mod ocr;
mod options;
mod passage;
mod placing;
mod probe;
mod reader;
mod sandbox;
mod searchable;
mod service;
mod services;
mod table;
mod write;

pub use cleanup::cleanup;
pub use extraction::{Extraction, Searchable};
pub use failure::{Failure, FailureCode};
pub use options::{CHUNK_WORDS, Engine, OcrEngine, Options, OutputFormat, Processor, language};
pub use passage::Passage;
pub use probe::TypeProbe;
pub use sandbox::{FairPlaces, Full, Place, PoolError, Progress, Share, Sizes, run_child};
pub use service::{Documents, Offer, Source, StartError};
pub use services::ServiceError;
pub use signalbox_confinement::Protection;
pub use table::{Table, TableCell};
