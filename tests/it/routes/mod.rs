//! Every route of the description against every kind of bad request. A route that is not in [`cases::case`] fails.

mod bodies;
mod cases;
mod credentials;
mod paths;
