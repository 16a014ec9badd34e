//! What receivers are told of where a value comes from.

use std::collections::HashMap;

use signalbox_datapoint_log::Origin;
use uuid::Uuid;

/// For values that no API token sent.
const NONE: &str = "api";

/// The API token that sent it.
pub(crate) fn token(origin: Origin) -> Option<Uuid> {
    match origin {
        Origin::Token(token) => Some(token),
        Origin::User(_) => None,
    }
}

/// The name of the token that sent it, among those in `names`.
pub(crate) fn name(origin: Origin, names: &HashMap<Uuid, String>) -> String {
    token(origin).and_then(|token| names.get(&token)).map_or(NONE, String::as_str).to_owned()
}
