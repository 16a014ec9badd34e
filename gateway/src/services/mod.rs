//! Services that handlers share through the state: made of pools, clocks and the bus. None of them takes the state, and none
//! knows how a request arrives.

pub(crate) mod consistency;
pub(crate) mod limits;
pub(crate) mod shares;
