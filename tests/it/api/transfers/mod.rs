mod by_real_agents;
mod cancelling;
mod faults;
mod pair;
mod schedules;
