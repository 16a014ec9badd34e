//! Words of closed sets in columns.

use std::{any::type_name, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, IntoDeserializer, value},
};
use sqlx::{
    Decode, Postgres, Type,
    error::BoxDynError,
    postgres::{PgHasArrayType, PgTypeInfo, PgValueRef},
};

/// A column with a word of the closed set `T`, whose words are those that serde writes.
///
/// A word that only a newer version of the program knows stays in its row: lists show it, and a fold writes it back. Work that
/// depends on its meaning asks for it by [`Word::known`], and fails for this row alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word<T> {
    text: String,
    known: Option<T>,
}

/// A word in a row that this version of the program does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a newer version has written the {set} {word:?}, which this version does not know: update it")]
pub struct UnknownWord {
    set: &'static str,
    word: String,
}

impl<T> Word<T> {
    /// The word as it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<T: Copy> Word<T> {
    /// The meaning of the word.
    ///
    /// # Errors
    /// [`UnknownWord`].
    pub fn known(&self) -> Result<T, UnknownWord> {
        self.known.ok_or_else(|| self.unknown())
    }
}

impl<T> Word<T> {
    pub(crate) fn unknown(&self) -> UnknownWord {
        UnknownWord { set: name_of::<T>(), word: self.text.clone() }
    }
}

impl<T: Copy + Default> Word<T> {
    /// The meaning of the word; an unknown one counts as the default, where work must not wait for an update.
    pub fn or_default(&self) -> T {
        self.known.unwrap_or_default()
    }
}

impl<T: PartialEq> Word<T> {
    /// Whether it means `meant`; an unknown word means nothing that is known.
    pub fn is(&self, meant: T) -> bool {
        self.known == Some(meant)
    }
}

fn name_of<T>() -> &'static str {
    let path = type_name::<T>();
    path.rsplit("::").next().unwrap_or(path)
}

impl<T: DeserializeOwned> Word<T> {
    fn read(text: String) -> Self {
        let known = T::deserialize(IntoDeserializer::<value::Error>::into_deserializer(text.as_str())).ok();
        Self { text, known }
    }
}

impl<T: Serialize> From<T> for Word<T> {
    fn from(known: T) -> Self {
        Self { text: word(&known), known: Some(known) }
    }
}

/// The word for `known` in columns.
pub fn word<T: Serialize>(known: T) -> String {
    Written(&known).to_string()
}

/// The word that serde writes for a variant without fields.
struct Written<'v, T>(&'v T);

impl<T: Serialize> fmt::Display for Written<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.serialize(f)
    }
}

impl<T> From<Word<T>> for String {
    fn from(word: Word<T>) -> Self {
        word.text
    }
}

impl<T> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl<T> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// Only words that are known: others are for rows of newer versions, not for requests.
impl<'de, T: Deserialize<'de> + Serialize> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

impl<T> Type<Postgres> for Word<T> {
    fn type_info() -> PgTypeInfo {
        <String as Type<Postgres>>::type_info()
    }

    fn compatible(other: &PgTypeInfo) -> bool {
        <String as Type<Postgres>>::compatible(other)
    }
}

impl<T> PgHasArrayType for Word<T> {
    fn array_type_info() -> PgTypeInfo {
        <String as PgHasArrayType>::array_type_info()
    }

    fn array_compatible(other: &PgTypeInfo) -> bool {
        <String as PgHasArrayType>::array_compatible(other)
    }
}

impl<'r, T: DeserializeOwned> Decode<'r, Postgres> for Word<T> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        <String as Decode<Postgres>>::decode(value).map(Self::read)
    }
}

#[cfg(test)]
mod tests {
    use signalbox_domain::{automation::EventType, identity::Role, transfer::Phase};

    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        for phase in [Phase::Queued, Phase::Dispatched, Phase::Done] {
            let word = Word::from(phase);
            assert_eq!(Word::read(word.as_str().to_owned()), word);
            assert_eq!(serde_json::to_value(&word).unwrap(), serde_json::to_value(phase).unwrap());
            assert_eq!(word.known(), Ok(phase));
        }
        assert_eq!(Word::from(EventType::SensorReading).as_str(), "sensor.reading");
    }

    #[test]
    fn an_unknown_word_is_kept_and_named() {
        let word = Word::<Phase>::read("verifying".to_owned());
        assert_eq!(serde_json::to_value(&word).unwrap(), "verifying");
        assert!(!word.is(Phase::Queued) && word.or_default() == Phase::Queued);
        let error = word.known().unwrap_err().to_string();
        assert!(error.contains("Phase") && error.contains("\"verifying\""), "{error}");
    }

    #[test]
    fn an_earlier_word_has_its_meaning_and_stays() {
        let word = Word::<Role>::read("user".to_owned());
        assert!(word.is(Role::Operator));
        assert_eq!(String::from(word), "user");
    }
}
