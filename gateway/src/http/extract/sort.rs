use std::marker::PhantomData;

use axum::{extract::FromRequestParts, http::request::Parts};
use serde::Deserialize;
use signalbox_projections::{Listed, Order};
use utoipa::{
    IntoParams,
    openapi::{
        ObjectBuilder, Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::Type,
    },
};

use super::Params;
use crate::http::problem::Problem;

/// `sort` of the list of `L`: one of the orders that it offers.
pub(crate) struct Sort<L> {
    given: Option<Order>,
    list: PhantomData<L>,
}

#[derive(Debug, Deserialize)]
struct SortParams {
    sort: Option<String>,
}

impl<L: Listed> Sort<L> {
    /// The requested order, or that of the list by itself.
    pub(crate) fn order(&self) -> Order {
        self.given.unwrap_or_else(L::default_order)
    }

    /// The requested order.
    pub(crate) fn given(&self) -> Option<Order> {
        self.given
    }

    fn parse(text: &str) -> Result<Order, Problem> {
        let fault = || format!("must be one of {}", L::SORTING.values().join(", "));
        L::SORTING.order(text).ok_or_else(|| Problem::field("sort", fault()))
    }
}

impl<S: Send + Sync, L: Listed> FromRequestParts<S> for Sort<L> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Params(SortParams { sort }) = Params::from_request_parts(parts, state).await?;
        let given = sort.as_deref().map(Self::parse).transpose()?;
        Ok(Self { given, list: PhantomData })
    }
}

impl<L: Listed> IntoParams for Sort<L> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(L::SORTING.values()));
        let description = "The order of the list: `newest` or `oldest` first, or by a field, ascending or, with `-` before it, descending. \
            Equal entries are in the order of their creation, reversed when the order is descending.";
        let parameter = ParameterBuilder::new()
            .name("sort")
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(Some(description))
            .schema(Some(schema.build()));
        vec![parameter.build()]
    }
}
