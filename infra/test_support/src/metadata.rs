use signalbox_clock::Clock;
use signalbox_domain::kernel::{Actor, Metadata};

/// Metadata of a new command by a part of the system that is called `test`.
pub fn metadata() -> Metadata {
    by(Actor::system("test"))
}

/// Metadata of a new command by `actor`.
pub fn by(actor: Actor) -> Metadata {
    Metadata {
        command_id: Clock::system().new_id(),
        actor,
        causation: None,
        correlation: "test".to_owned(),
        traceparent: None,
        restored_version: None,
    }
}
