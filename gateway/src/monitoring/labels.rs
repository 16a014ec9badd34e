//! `label=key:value` in queries, which may be given several times.

use axum::{extract::FromRequestParts, http::request::Parts};
use signalbox_domain::monitoring::{Labels, MAX_LABELS, is_label_key};
use utoipa::{
    IntoParams,
    openapi::{
        Array, ObjectBuilder, Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::Type,
    },
};

use crate::{extract::Params, problem::Problem};

/// The labels that channels must have, all of them; empty if none is given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelFilter(pub(crate) Labels);

impl LabelFilter {
    fn parse(pairs: Vec<(String, String)>) -> Result<Self, Problem> {
        let mut labels = Labels::new();
        for (_, text) in pairs.into_iter().filter(|(name, _)| name == "label") {
            let pair = text.split_once(':').filter(|(key, _)| is_label_key(key));
            let Some((key, value)) = pair else {
                return Err(Problem::field("label", "must be a key and a value with a colon between them"));
            };
            let known = labels.insert(key.to_owned(), value.to_owned());
            if known.is_some_and(|known| known != value) {
                return Err(Problem::field("label", "names a key with two values, which no event has"));
            }
            if labels.len() > MAX_LABELS {
                return Err(Problem::field(
                    "label",
                    format_args!("may be given for at most {MAX_LABELS} keys"),
                ));
            }
        }
        Ok(Self(labels))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for LabelFilter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Params(pairs) = Params::<Vec<(String, String)>>::from_request_parts(parts, state).await?;
        Self::parse(pairs)
    }
}

impl IntoParams for LabelFilter {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new().schema_type(Type::String).build();
        let parameter = ParameterBuilder::new()
            .name("label")
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(Some("A label as `key:value`; given several times, all of them must fit."))
            .schema(Some(Array::new(text)));
        vec![parameter.build()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str]) -> Result<LabelFilter, Problem> {
        LabelFilter::parse(texts.iter().map(|text| ("label".to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn a_label_is_split_at_its_first_colon() {
        let filter = parsed(&["line:2", "room:Süd: 1", "empty:", "line:2"]).unwrap();
        let expected = [("empty", ""), ("line", "2"), ("room", "Süd: 1")];
        assert_eq!(filter.0, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        assert_eq!(parsed(&[]).unwrap(), LabelFilter::default());
    }

    #[test]
    fn texts_that_are_no_labels_are_refused() {
        for texts in [&["line"][..], &[":2"], &["1st:2"], &["a b:2"], &["line:1", "line:2"]] {
            assert!(parsed(texts).is_err(), "{texts:?}");
        }
        let many: Vec<_> = (0..=MAX_LABELS).map(|index| format!("k{index}:v")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(parsed(&many[1..]).is_ok());
        assert!(parsed(&many).is_err());
    }
}
