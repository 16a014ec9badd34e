//! Numbers as existing clients of service 2 send them: `1.5` or `"1.5"`.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected},
};

/// A number in a request of service 2, which may be written as a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numeric<T>(pub(crate) T);

impl<T> Numeric<T> {
    /// The number itself.
    pub(crate) fn get(self) -> T {
        self.0
    }
}

/// A type that a JSON number is read as.
pub(crate) trait FromNumber: FromStr {
    fn expected() -> String;

    fn from_i64(number: i64) -> Option<Self>;
    fn from_u64(number: u64) -> Option<Self>;
    fn from_f64(number: f64) -> Option<Self>;

    /// Whether it is a number as JSON knows them.
    fn is_finite(&self) -> bool {
        true
    }
}

impl FromNumber for f64 {
    fn expected() -> String {
        "a finite number".to_owned()
    }

    fn from_i64(number: i64) -> Option<Self> {
        Some(number as Self)
    }

    fn from_u64(number: u64) -> Option<Self> {
        Some(number as Self)
    }

    fn from_f64(number: f64) -> Option<Self> {
        Some(number)
    }

    fn is_finite(&self) -> bool {
        Self::is_finite(*self)
    }
}

macro_rules! whole {
    ($($type:ty),*) => {$(
        impl FromNumber for $type {
            fn expected() -> String {
                format!("a whole number from {} to {}", Self::MIN, Self::MAX)
            }

            fn from_i64(number: i64) -> Option<Self> {
                number.try_into().ok()
            }

            fn from_u64(number: u64) -> Option<Self> {
                number.try_into().ok()
            }

            fn from_f64(_: f64) -> Option<Self> {
                None
            }
        }
    )*};
}
whole!(i32, i64, u32);

struct NumericVisitor<T>(PhantomData<T>);

impl<T: FromNumber> NumericVisitor<T> {
    fn checked<E: de::Error>(self, number: Option<T>, found: &'static str) -> Result<T, E> {
        let number = number.filter(FromNumber::is_finite);
        number.ok_or_else(|| E::invalid_value(Unexpected::Other(found), &self))
    }
}

impl<T: FromNumber> de::Visitor<'_> for NumericVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.checked(T::from_i64(number), "number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.checked(T::from_u64(number), "number")
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.checked(T::from_f64(number), "number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.checked(text.trim().parse().ok(), "text")
    }
}

impl<'de, T: FromNumber> Deserialize<'de> for Numeric<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumericVisitor(PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: FromNumber>(json: &str) -> Option<T> {
        serde_json::from_str::<Numeric<T>>(json).ok().map(|number| number.0)
    }

    #[test]
    fn numbers_are_read_from_numbers_and_texts() {
        for json in ["1.5", "\"1.5\"", "\" 1.5 \"", "\"15e-1\""] {
            assert_eq!(read::<f64>(json), Some(1.5), "{json}");
        }
        assert_eq!((read::<f64>("3"), read::<f64>("-3")), (Some(3.0), Some(-3.0)));
        assert_eq!(
            (read::<u32>("\"60\""), read::<i32>("-4"), read::<i64>("4")),
            (Some(60), Some(-4), Some(4))
        );
    }

    #[test]
    fn other_values_are_refused() {
        for json in ["\"\"", "\"x\"", "\"NaN\"", "\"inf\"", "\"1e400\"", "true", "null", "[1]", "{}"] {
            assert_eq!(read::<f64>(json), None, "{json}");
        }
        for json in ["1.5", "\"1.5\"", "-1", "\"-1\"", "4294967296"] {
            assert_eq!(read::<u32>(json), None, "{json}");
        }
    }
}
