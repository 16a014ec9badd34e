//! Clients of InfluxDB 1 ask for their database before they write.

use axum::{Json, extract::Request};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    auth::Reader,
    extract::{Params, read_body},
    problem::{InfluxErrorOut, Problem},
};

/// The database that is shown; any name may be written to.
const DATABASE: &str = "signalbox";

/// A question.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::monitoring) struct QueryParams {
    /// `SHOW DATABASES` or `CREATE DATABASE …`.
    q: Option<String>,
}

/// The answer to a question.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::monitoring) struct QueryOut {
    /// One for each statement.
    results: Vec<ResultOut>,
}

/// The result of a statement.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::monitoring) struct ResultOut {
    /// Place of the statement, from 0.
    statement_id: u32,
    /// The tables that it shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    series: Vec<TableOut>,
}

/// A table of a result.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::monitoring) struct TableOut {
    /// Name of the table.
    name: String,
    /// Names of the columns.
    columns: Vec<String>,
    /// Rows, each with a value for each column.
    values: Vec<Vec<String>>,
}

/// Answer `CREATE DATABASE` and `SHOW DATABASES`, which clients of InfluxDB 1 send before they write. Other queries are refused.
#[utoipa::path(get, path = "/query", tag = "line protocol", security(("jwt" = [])), params(QueryParams), operation_id = "query_databases",
    responses((status = 200, body = QueryOut), (status = 400, body = InfluxErrorOut), (status = 401, body = InfluxErrorOut)))]
pub(in crate::monitoring) async fn query(
    _: Reader,
    Params(params): Params<QueryParams>,
) -> Result<Json<QueryOut>, Problem> {
    answer(params.q.as_deref().unwrap_or_default()).map(Json)
}

/// Answer `CREATE DATABASE` and `SHOW DATABASES`, as a form or in the address.
#[utoipa::path(post, path = "/query", tag = "line protocol", security(("jwt" = [])), params(QueryParams), operation_id = "query_databases_by_form",
    request_body(content = String, content_type = "application/x-www-form-urlencoded", description = "A form with the query as `q`."),
    responses((status = 200, body = QueryOut), (status = 400, body = InfluxErrorOut), (status = 401, body = InfluxErrorOut)))]
pub(in crate::monitoring) async fn query_by_form(
    _: Reader,
    Params(params): Params<QueryParams>,
    request: Request,
) -> Result<Json<QueryOut>, Problem> {
    let body = read_body(request).await?;
    let of_form = url::form_urlencoded::parse(&body).find(|(name, _)| name == "q");
    let query = params.q.or_else(|| of_form.map(|(_, query)| query.into_owned()));
    answer(query.as_deref().unwrap_or_default()).map(Json)
}

fn answer(query: &str) -> Result<QueryOut, Problem> {
    let statement = query.trim();
    let statement = statement.strip_suffix(';').unwrap_or(statement);
    // Between quotes a semicolon belongs to a name.
    let are_several = statement.split('"').step_by(2).any(|outside| outside.contains(';'));
    let mut words = statement.split_whitespace().map(str::to_ascii_lowercase);
    let series = match (words.next().as_deref(), words.next().as_deref(), words.next()) {
        _ if are_several => return Err(Problem::malformed("only one statement is answered at a time")),
        (Some("show"), Some("databases"), None) => {
            vec![TableOut {
                name: "databases".to_owned(),
                columns: vec!["name".to_owned()],
                values: vec![vec![DATABASE.to_owned()]],
            }]
        }
        (Some("create"), Some("database"), Some(_)) => Vec::new(),
        _ => {
            let detail = "only CREATE DATABASE and SHOW DATABASES are answered here: read values by POST /api/v1/datapoints/series";
            return Err(Problem::malformed(detail));
        }
    };
    Ok(QueryOut { results: vec![ResultOut { statement_id: 0, series }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_shown_and_created_and_nothing_else() {
        let tables = |query| answer(query).ok().map(|out| out.results[0].series.len());
        assert_eq!(tables("SHOW DATABASES"), Some(1));
        assert_eq!(tables(" show  databases; "), Some(1));
        assert_eq!(tables("CREATE DATABASE \"telegraf\""), Some(0));
        assert_eq!(tables("CREATE DATABASE \"plant;two\";"), Some(0));
        let several = [
            "CREATE DATABASE x; DROP DATABASE x",
            "CREATE DATABASE \"x\";;",
            "SHOW DATABASES; SHOW DATABASES",
        ];
        for other in
            ["", "SHOW", "CREATE DATABASE", "DROP DATABASE x", "SELECT * FROM cpu"].into_iter().chain(several)
        {
            assert_eq!(tables(other), None, "{other}");
        }
    }
}
