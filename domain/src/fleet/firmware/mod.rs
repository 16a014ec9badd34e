//! Firmware updates: a version with its bundle, how it is brought into force, and how that is undone.
//!
//! Of all updates of an installation one at a time is applied or rolled back, and one at most is the running version. Both are
//! claims, because no single update can know them.

mod decide;
mod events;
mod state;
#[cfg(test)]
mod tests;

pub use events::{
    FirmwareBundle, FirmwareCommand, FirmwareEvent, FirmwareEventKind, FirmwareFailure, FirmwareRef,
    NewFirmware,
};
pub use state::{Firmware, FirmwareStatus};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::decide::{MAX_CHANGELOG, MAX_SIGNATURE, MAX_URL};
}
