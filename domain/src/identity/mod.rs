//! Users and their sessions.

mod role;
mod session;
mod user;

pub use role::Role;
pub use session::{Session, SessionCommand, SessionEvent};
pub use user::{NewUser, User, UserChanges, UserCommand, UserEvent};
