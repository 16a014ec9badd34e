//! Typed values from JSON and from queries. An error names the field and the expected value, as data,
//! and never repeats the input.

use std::{borrow::Cow, fmt};

use serde::{
    Deserializer,
    de::{
        self, DeserializeOwned, Expected, IntoDeserializer, Unexpected, Visitor,
        value::{
            CowStrDeserializer, MapAccessDeserializer, MapDeserializer, SeqDeserializer, StringDeserializer,
        },
    },
    forward_to_deserialize_any,
};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use signalbox_domain::kernel::FieldPointer;
use url::form_urlencoded;

use crate::http::problem::Problem;

/// Why a value does not fit its type.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Misfit {
    /// The field of the object in question, if it is one.
    field: Option<&'static str>,
    /// The rest of the sentence after the name of the field.
    text: String,
}

/// A JSON value that is read.
struct Json(Value);

/// A value of a query that is read as the type that its field has.
struct QueryValue<'a>(Cow<'a, str>);

/// `value` as a `T`.
pub(crate) fn from_json<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Json(value)).map_err(|error| {
        let path = error.path().clone();
        let Misfit { field, text } = error.into_inner();
        let is_nested = path.iter().len() > 0;
        let problem = Problem::invalid(match field {
            Some(field) if is_nested => format!("{path}.{field} {text}"),
            Some(field) => format!("{field} {text}"),
            None if is_nested => format!("{path} {text}"),
            None => format!("the body {text}"),
        });
        match pointer(&path, field) {
            Some(pointer) => problem.at(pointer),
            None => problem,
        }
    })
}

/// The fields of `query` as a `T`; unknown ones are ignored.
pub(super) fn from_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = form_urlencoded::parse(query.as_bytes()).map(|(name, value)| (name, QueryValue(value)));
    let read = serde_path_to_error::deserialize(MapDeserializer::<_, Misfit>::new(pairs));
    read.map_err(|error| {
        let name = error.path().iter().find_map(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            _ => None,
        });
        let misfit = error.into_inner();
        match name.as_deref().or(misfit.field) {
            Some(name) => Problem::field(name, misfit.text),
            None => Problem::invalid(format!("the query {misfit}")),
        }
    })
}

/// The pointer to `field` of the object at `path`, or to what is there itself; none for the whole.
fn pointer(path: &Path, field: Option<&str>) -> Option<FieldPointer> {
    let mut segments: Vec<Cow<'_, str>> = Vec::new();
    for segment in path {
        segments.push(match segment {
            Segment::Seq { index } => Cow::Owned(index.to_string()),
            Segment::Map { key } => Cow::Borrowed(key),
            Segment::Enum { variant } => Cow::Borrowed(variant),
            Segment::Unknown => break,
        });
    }
    segments.extend(field.map(Cow::Borrowed));
    (!segments.is_empty()).then(|| segments.into_iter().collect())
}

impl Misfit {
    fn other(text: String) -> Self {
        Self { field: None, text }
    }

    fn must_be(what: &str) -> Self {
        Self::other(format!("must be {what}"))
    }
}

/// The values that a type expects, in words of people that do not know Rust.
fn in_words(expected: &dyn Expected) -> Cow<'static, str> {
    let expected = expected.to_string();
    match expected.as_str() {
        "i8" => "a whole number from -128 to 127".into(),
        "i16" => "a whole number from -32768 to 32767".into(),
        "i32" => "a whole number from -2147483648 to 2147483647".into(),
        "i64" | "i128" | "isize" => "a whole number".into(),
        "u8" => "a whole number from 0 to 255".into(),
        "u16" => "a whole number from 0 to 65535".into(),
        "u32" => "a whole number from 0 to 4294967295".into(),
        "u64" | "u128" | "usize" => "a whole number that is not negative".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "a character" => "a text".into(),
        "a sequence" => "a list".into(),
        "a map" | "an object" => "an object".into(),
        word if word.starts_with("struct ") || word.contains("tagged enum ") => "an object".into(),
        word if word.starts_with("enum ") || word == "variant identifier" => "one of its words".into(),
        word if word.contains("UUID") => "an id".into(),
        _ => expected.into(),
    }
}

impl de::Error for Misfit {
    /// Our own types say what a value must be; libraries say how they read it, which is of no use here.
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        if message.starts_with("must ") || message.starts_with("is ") {
            Self::other(message)
        } else if message.starts_with("UUID") {
            Self::must_be("an id")
        } else {
            Self::other("is not a value that this field takes".to_owned())
        }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::must_be(&in_words(expected))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::must_be(&in_words(expected))
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::other(format!("has another length than it must have: {}", in_words(expected)))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::must_be(&format!("one of {}", expected.join(", ")))
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self::other("has a field that is not known".to_owned())
    }

    fn missing_field(field: &'static str) -> Self {
        Self { field: Some(field), text: "is required".to_owned() }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self { field: Some(field), text: "is given twice: give it once".to_owned() }
    }
}

impl<'de> IntoDeserializer<'de, Misfit> for Json {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Json {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(de::Error::invalid_type(Unexpected::Other("number"), &visitor)),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => {
                SeqDeserializer::<_, Misfit>::new(items.into_iter().map(Json)).deserialize_any(visitor)
            }
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| (name, Json(value)));
                MapDeserializer::<_, Misfit>::new(fields).deserialize_any(visitor)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(StringDeserializer::<Misfit>::new(word)),
            Value::Object(fields) if fields.len() == 1 => {
                let fields = fields.into_iter().map(|(name, value)| (name, Json(value)));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::<_, Misfit>::new(fields)))
            }
            _ => Err(de::Error::invalid_type(Unexpected::Other("value"), &"a string")),
        }
    }

    /// Without this, derived types would also read their fields from an array, in the order of their declaration.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(de::Error::invalid_type(Unexpected::Other("value"), &"an object")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Misfit> for QueryValue<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($deserialize:ident => $visit:ident,)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            match self.0.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(de::Error::invalid_value(Unexpected::Other("text"), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for QueryValue<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_string(self.0.into_owned())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_enum(CowStrDeserializer::<Misfit>::new(self.0))
    }

    parsed! {
        deserialize_bool => visit_bool,
        deserialize_i8 => visit_i8,
        deserialize_i16 => visit_i16,
        deserialize_i32 => visit_i32,
        deserialize_i64 => visit_i64,
        deserialize_u8 => visit_u8,
        deserialize_u16 => visit_u16,
        deserialize_u32 => visit_u32,
        deserialize_u64 => visit_u64,
        deserialize_f32 => visit_f32,
        deserialize_f64 => visit_f64,
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        First,
        Second,
    }

    #[derive(Debug, Deserialize)]
    struct In {
        size: Option<u32>,
        word: Word,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(Debug, Deserialize)]
    struct Item {
        value: f64,
    }

    #[test]
    fn libraries_do_not_speak_to_people() {
        #[derive(Debug, Deserialize)]
        struct Ids {
            #[expect(dead_code, reason = "only its type matters")]
            id: uuid::Uuid,
        }
        #[derive(Debug, Deserialize)]
        struct Times {
            #[expect(dead_code, reason = "only its type matters")]
            on: chrono::NaiveDate,
        }
        let expected = ("/id".to_owned(), "id must be an id".to_owned());
        for id in [json!("geheim"), json!(5)] {
            assert_eq!(refusal(from_json::<Ids>(json!({ "id": id }))), expected);
        }
        let expected = ("/on".to_owned(), "on is not a value that this field takes".to_owned());
        assert_eq!(refusal(from_json::<Times>(json!({"on": "2026-02-30"}))), expected);
    }

    #[derive(Debug, Deserialize)]
    struct Asked {
        limit: Option<i64>,
        all: Option<bool>,
        word: Word,
    }

    fn refusal<T: fmt::Debug>(read: Result<T, Problem>) -> (String, String) {
        let problem = read.unwrap_err();
        let pointer = problem.pointer().map_or("", FieldPointer::as_str).to_owned();
        (pointer, problem.detail().to_owned())
    }

    #[test]
    fn values_are_read_as_their_types() {
        let read: In =
            from_json(json!({"size": 1, "word": "second", "items": [{"value": 2}, {"value": -0.5}]}))
                .unwrap();
        assert!(matches!(read, In { size: Some(1), word: Word::Second, .. }));
        assert_eq!(read.items.iter().map(|item| item.value).collect::<Vec<_>>(), [2.0, -0.5]);
        let read: In = from_json(json!({"size": null, "word": "first", "unknown": {}})).unwrap();
        assert!(matches!(read, In { size: None, word: Word::First, .. }) && read.items.is_empty());
    }

    #[test]
    fn misfits_point_to_their_field_without_the_input() {
        for (value, pointer, detail) in [
            (
                json!({"word": "first", "size": "geheim"}),
                "/size",
                "size must be a whole number from 0 to 4294967295",
            ),
            (json!({"word": "geheim"}), "/word", "word must be one of first, second"),
            (json!({"word": 5}), "/word", "word must be a text"),
            (json!({"word": "first", "items": [[1]]}), "/items/0", "items[0] must be an object"),
            (json!({}), "/word", "word is required"),
            (
                json!({"word": "first", "items": [{"value": 1}, {}]}),
                "/items/1/value",
                "items[1].value is required",
            ),
            (
                json!({"word": "first", "items": [{"value": "geheim"}]}),
                "/items/0/value",
                "items[0].value must be a number",
            ),
        ] {
            assert_eq!(refusal(from_json::<In>(value)), (pointer.to_owned(), detail.to_owned()));
        }
    }

    #[test]
    fn queries_are_read_as_their_types() {
        let read: Asked = from_query("limit=5&all=true&word=second&other=1").unwrap();
        assert!(matches!(read, Asked { limit: Some(5), all: Some(true), word: Word::Second }));
        assert!(matches!(from_query("word=first").unwrap(), Asked { limit: None, all: None, .. }));
    }

    #[test]
    fn wrong_queries_name_their_parameter() {
        for (query, pointer, detail) in [
            ("word=first&limit=geheim", "/limit", "limit must be a whole number"),
            ("word=first&all=geheim", "/all", "all must be true or false"),
            ("word=geheim", "/word", "word must be one of first, second"),
            ("", "/word", "word is required"),
            ("word=first&word=second", "/word", "word is given twice: give it once"),
        ] {
            assert_eq!(refusal(from_query::<Asked>(query)), (pointer.to_owned(), detail.to_owned()));
        }
    }
}
