use std::ops::RangeInclusive;

use serde::Deserialize;
use signalbox_projections::Page;
use utoipa::{
    IntoParams,
    openapi::{
        ObjectBuilder, Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::Type,
    },
};

use crate::http::{answer, problem::Problem};

const LIMITS: RangeInclusive<i64> = 1..=500;
const OFFSETS: RangeInclusive<i64> = 0..=1_000_000_000;
const PAGES: RangeInclusive<i64> = 1..=1_000_000;
pub(crate) const PAGE_SIZES: RangeInclusive<i64> = 1..=100;

/// `value` of the field `name`, or `default`, if it is in `range`.
pub(crate) fn within(
    name: &str,
    value: Option<i64>,
    default: i64,
    range: &RangeInclusive<i64>,
) -> Result<i64, Problem> {
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Problem::field(name, format!("must be between {} and {}", range.start(), range.end())))
}

/// `limit` of a list that is read piece by piece: `DEFAULT` if absent, `MOST` at most.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(crate) struct LimitParams<const DEFAULT: i64, const MOST: i64> {
    limit: Option<i64>,
}

/// `limit` and `offset` of a list of service 1.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(crate) struct PageParams {
    limit: Option<i64>,
    offset: Option<i64>,
}

/// `page` and `page_size` of a list of services 2 and 3; `SIZE` entries a page if absent.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(crate) struct EnvelopeParams<const SIZE: i64 = 25> {
    page: Option<i64>,
    page_size: Option<i64>,
}

impl<const DEFAULT: i64, const MOST: i64> LimitParams<DEFAULT, MOST> {
    pub(crate) fn limit(self) -> Result<i64, Problem> {
        within("limit", self.limit, DEFAULT, &(1..=MOST))
    }
}

impl PageParams {
    pub(crate) fn page(self) -> Result<Page, Problem> {
        let limit = within("limit", self.limit, 100, &LIMITS)?;
        let offset = within("offset", self.offset, 0, &OFFSETS)?;
        Ok(Page { limit, offset })
    }
}

impl<const SIZE: i64> EnvelopeParams<SIZE> {
    /// The number of the page and its size, as they were given.
    pub(crate) fn numbers(self) -> (i64, i64) {
        (self.page.unwrap_or(1), self.page_size.unwrap_or(SIZE))
    }

    pub(crate) fn page(self) -> Result<Page, Problem> {
        let page = within("page", self.page, 1, &PAGES)?;
        let page_size = within("page_size", self.page_size, SIZE, &PAGE_SIZES)?;
        Ok(Page { limit: page_size, offset: (page - 1) * page_size })
    }

    /// The envelope around `data`, which is this page of `total` rows.
    pub(crate) fn envelope<T>(self, total: i64, data: Vec<T>) -> answer::Page<T> {
        let (page, page_size) = self.numbers();
        answer::Page { page, page_size, total, total_estimated: false, data }
    }
}

impl<const DEFAULT: i64, const MOST: i64> IntoParams for LimitParams<DEFAULT, MOST> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![whole("limit", "Entries at most.", DEFAULT, &(1..=MOST))]
    }
}

impl IntoParams for PageParams {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![
            whole("limit", "Rows at most.", 100, &LIMITS),
            whole("offset", "Rows to leave out first.", 0, &OFFSETS),
        ]
    }
}

impl<const SIZE: i64> IntoParams for EnvelopeParams<SIZE> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![
            whole("page", "Number of the page.", 1, &PAGES),
            whole("page_size", "Entries of a page at most.", SIZE, &PAGE_SIZES),
        ]
    }
}

/// A whole number in the query, with its range in words and for programs.
fn whole(name: &str, what: &str, default: i64, range: &RangeInclusive<i64>) -> Parameter {
    let (least, most) = (range.start(), range.end());
    let schema = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(*least))
        .maximum(Some(*most))
        .default(Some(default.into()));
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(format!("{what} {least} to {most}; {default} if absent.")))
        .schema(Some(schema.build()))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded() {
        let page = |page, page_size| EnvelopeParams::<50> { page, page_size }.page();
        assert!(matches!(page(None, None), Ok(Page { limit: 50, offset: 0 })));
        assert!(matches!(page(Some(3), Some(10)), Ok(Page { limit: 10, offset: 20 })));
        for (number, size) in [(0, 10), (1_000_001, 10), (i64::MIN, 10), (1, 0), (1, 101), (1, i64::MAX)] {
            assert!(page(Some(number), Some(size)).is_err(), "{number} {size}");
        }
        let refusal = PageParams { limit: Some(501), offset: None }.page().map(|_| ());
        assert_eq!(refusal.unwrap_err().detail(), "limit must be between 1 and 500");
        assert!(PageParams { limit: None, offset: Some(-1) }.page().is_err());
        assert_eq!(LimitParams::<500, 1000> { limit: None }.limit().ok(), Some(500));
        assert!(LimitParams::<500, 1000> { limit: Some(1001) }.limit().is_err());
    }
}
