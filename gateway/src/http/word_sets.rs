//! Schemas of closed sets of words, which the description shows as enums. Views name them by `#[schema(value_type = …)]`, so that a
//! word is written down once: where the code has an enum, its words are read from there.

use std::fmt;

use serde::{
    Deserializer, Serialize,
    de::{self, DeserializeOwned, Visitor},
    forward_to_deserialize_any,
};
use serde_json::Value;
use utoipa::openapi::{
    ObjectBuilder, RefOr,
    schema::{Schema, Type},
};

/// Defines a type that stands for a set of words in the description.
macro_rules! word_set {
    (#[doc = $doc:literal] $name:ident = $words:expr) => {
        #[doc = $doc]
        pub(crate) enum $name {}

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::http::word_sets::schema_of($doc.trim(), $words.iter().copied())
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}
pub(crate) use word_set;

word_set! {
    /// The request succeeded.
    Success = ["success"]
}

pub(crate) fn schema_of(description: &str, words: impl Iterator<Item = &'static str>) -> RefOr<Schema> {
    let schema = ObjectBuilder::new().schema_type(Type::String).description(Some(description));
    schema.enum_values(Some(words)).build().into()
}

/// The words that `T` is written as, without those that are only read.
pub(crate) fn of<T: Serialize + DeserializeOwned>() -> Vec<&'static str> {
    let Err(Variants(words)) = T::deserialize(Probe) else { return Vec::new() };
    let is_written = |word: &str| {
        let read = serde_json::from_value::<T>(Value::from(word));
        read.ok().and_then(|value| serde_json::to_value(value).ok()) == Some(Value::from(word))
    };
    words.iter().copied().filter(|word| is_written(word)).collect()
}

/// Reads nothing, and learns which variants an enum has.
struct Probe;

#[derive(Debug)]
struct Variants(&'static [&'static str]);

impl fmt::Display for Variants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is nothing to read")
    }
}

impl std::error::Error for Variants {}

impl de::Error for Variants {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Variants;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Variants> {
        Err(Variants(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Variants> {
        Err(Variants(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
