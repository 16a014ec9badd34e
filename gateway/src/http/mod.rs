//! HTTP as every route uses it: answers and problems, extractors, forms, headers, pages, paths, and the policies of routes. It
//! knows neither a context nor the state of the gateway.

pub(crate) mod answer;
pub(crate) mod blobs;
pub(crate) mod client_address;
pub(crate) mod connections;
pub(crate) mod extract;
pub(crate) mod form;
pub(crate) mod headers;
pub(crate) mod network;
pub(crate) mod paths;
pub(crate) mod policy;
pub(crate) mod problem;
pub(crate) mod settings;
pub(crate) mod sockets;
pub(crate) mod word_sets;
