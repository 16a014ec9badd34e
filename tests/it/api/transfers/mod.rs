mod by_real_agents;
mod cancelling;
mod faults;
pub mod pair;
mod schedules;
