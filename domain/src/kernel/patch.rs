use serde::{Deserialize, Deserializer};

/// For fields of a change where absent means "leave" and null means "clear": the outer option is presence.
///
/// # Errors
/// Those of the value itself.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
