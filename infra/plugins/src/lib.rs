//! Wheels with plugins.
//!
//! A wheel is checked before anything of it is unpacked ([`Wheel`]), and unpacked into a folder that is its own. Its
//! classes are listed by a process that runs its code and can do nothing else ([`Plugins::describe`]): without
//! network, other processes, files of others, an environment, or time and memory without limit.

mod child;
mod describe;
mod restrict;
mod sdk;
mod wheel;

pub use child::run as run_child;
pub use describe::{DescribeError, Plugins, Question};
pub use wheel::{MAX_WHEEL_BYTES, Wheel, WheelError};
