//! Why a server could not be started: one variant for each thing that a person would do about it.

use std::io;
use std::path::PathBuf;

/// Each message states what happened, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error("{program} was not found in {searched}; {remedy}")]
    Missing { program: &'static str, searched: String, remedy: &'static str },

    #[error("{program} at {path} is version {found}, but {required} or newer is needed; {remedy}")]
    TooOld {
        program: &'static str,
        path: PathBuf,
        found: String,
        required: &'static str,
        remedy: &'static str,
    },

    #[error("{path} did not report its version (it said \"{said}\"), so it is not used; install it anew")]
    VersionUnknown { path: PathBuf, said: String },

    #[error(
        "the data in {data_dir} was written by PostgreSQL {major}, which is not installed; install that version, or \
         dump the data there and restore it into an empty folder"
    )]
    OtherMajor { data_dir: PathBuf, major: u32 },

    #[error(
        "the data folder {data_dir} is in use by another Signalbox; stop that one or choose another folder"
    )]
    InUse { data_dir: PathBuf },

    #[error("port {port} on 127.0.0.1 is taken by another program; stop that program or choose another port")]
    PortTaken { port: u16 },

    #[error(
        "the system user {user} does not exist, and PostgreSQL refuses to run as root; install PostgreSQL from the \
         system's packages or name an existing user in SIGNALBOX_POSTGRES_USER"
    )]
    NoSuchUser { user: String },

    #[error(
        "the system user {user} cannot enter {data_dir}, and this process may not grant it the capability to; choose \
         a data folder whose parent folders that user may enter"
    )]
    Unreachable { user: String, data_dir: PathBuf },

    #[error("PostgreSQL could not lay out its data in {data_dir}; its output says why:\n{output}")]
    InitFailed { data_dir: PathBuf, output: String },

    #[error("{program} ended while it started ({status}); the end of its log {log} says why:\n{tail}")]
    Exited { program: &'static str, status: String, log: PathBuf, tail: String },

    #[error(
        "{program} was not ready after {waited_seconds} s without a new line in its log {log}, and was stopped; see \
         its last lines and whether the machine is overloaded:\n{tail}"
    )]
    NotReady { program: &'static str, waited_seconds: u64, log: PathBuf, tail: String },

    #[error(
        "a process ({pid}) of an earlier run still uses {data_dir} and could not be ended; end it by hand"
    )]
    LeftoverRemains { pid: u32, data_dir: PathBuf },

    #[error("could not {action} {path}: {source}; check the folder's owner, mode and free space")]
    File { action: &'static str, path: PathBuf, source: io::Error },

    #[error("could not run {program}: {source}; check that it is installed and may be executed")]
    Run { program: String, source: io::Error },
}

impl EmbeddedError {
    /// For `map_err`: names what was being done to which file.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    /// For `map_err`: names the program that could not be run.
    pub(crate) fn run(program: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let program = program.into();
        move |source| Self::Run { program, source }
    }
}
