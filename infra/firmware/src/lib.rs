//! Firmware on this machine's disk.
//!
//! A bundle is a `.tar.gz`. It is verified ([`Updates::verify`]) before anything of it is unpacked, and unpacked into a folder that
//! is named after its version, all of it or nothing. The link `current` beside these folders says which version is in force; it
//! changes in one step ([`Locked::switch`]). Then a hook of the operator's brings the machine to that version.
//!
//! It does not record which version is in force (the event log does), and it does not fetch bundles.
//!
//! After a crash at any point, a version's folder is whole or absent, and `current` leads to the previous version or
//! the new one; a partly unpacked folder is called `….partial` and removed by [`Locked::sweep`].

mod hook;
mod installation;
mod unpack;
mod verify;

pub use hook::HookError;
pub use installation::{InvalidKey, Locked, Occasion, Updates};
pub use unpack::UnpackError;
pub use verify::{VerifyError, is_signature};
