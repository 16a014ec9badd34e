mod by_real_agents;
mod cancelling;
mod deleting;
mod faults;
mod from_owner;
pub mod pair;
mod schedules;
mod unreported;
