//! Steps of devices that take long.

mod firmware;

pub use self::firmware::FirmwareRunner;
