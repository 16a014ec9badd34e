//! Writes rows into a table: one statement for few, `COPY` for many.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};
use sqlx::{PgConnection, types::Json};

use crate::ApplyError;

/// Number of new rows from which `COPY` is quicker.
const COPIED: usize = 64;
/// Size at which encoded rows are sent, in bytes.
const PART: usize = 256 * 1024;

/// Writes `rows` into `schema.table`, replacing those with the same `key`.
pub(crate) async fn upsert<R: Serialize>(
    connection: &mut PgConnection,
    schema: &str,
    table: &'static str,
    key: &str,
    rows: &[R],
) -> Result<(), ApplyError> {
    let Some(columns) = columns(table, rows)? else { return Ok(()) };
    let excluded = columns.iter().map(|column| format!("excluded.{column}")).collect::<Vec<_>>().join(", ");
    let columns = columns.join(", ");
    let sql = format!(
        "INSERT INTO {schema}.{table} ({columns})
         SELECT {columns} FROM jsonb_populate_recordset(NULL::{schema}.{table}, $1)
             ON CONFLICT ({key}) DO UPDATE SET ({columns}) = ROW({excluded})"
    );
    sqlx::query(&sql).bind(document(table, rows)?).execute(connection).await?;
    Ok(())
}

/// Inserts `rows`, which are not in `schema.table` yet.
pub(crate) async fn insert<R: Serialize>(
    connection: &mut PgConnection,
    schema: &str,
    table: &'static str,
    rows: &[R],
) -> Result<(), ApplyError> {
    let Some(columns) = columns(table, rows)? else { return Ok(()) };
    if rows.len() >= COPIED {
        return copy(connection, schema, table, &columns, rows).await;
    }
    let columns = columns.join(", ");
    let sql = format!(
        "INSERT INTO {schema}.{table} ({columns})
         SELECT {columns} FROM jsonb_populate_recordset(NULL::{schema}.{table}, $1)"
    );
    sqlx::query(&sql).bind(document(table, rows)?).execute(connection).await?;
    Ok(())
}

/// `rows` as the JSON that a statement takes them from.
fn document<R: Serialize>(table: &'static str, rows: &[R]) -> Result<Json<Box<RawValue>>, ApplyError> {
    to_raw_value(rows).map(Json).map_err(|source| ApplyError::Row { table, source })
}

async fn copy<R: Serialize>(
    connection: &mut PgConnection,
    schema: &str,
    table: &'static str,
    columns: &[String],
    rows: &[R],
) -> Result<(), ApplyError> {
    let documents = document_columns(connection, schema, table).await?;
    let statement = format!("COPY {schema}.{table} ({}) FROM STDIN", columns.join(", "));
    let mut copy = connection.copy_in_raw(&statement).await?;
    let mut text = String::with_capacity(PART + PART / 4);
    for row in rows {
        let row = fields(table, row)?;
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                text.push('\t');
            }
            push_field(&mut text, &row[column], documents.contains(column));
        }
        text.push('\n');
        if text.len() >= PART {
            copy.send(text.as_bytes()).await?;
            text.clear();
        }
    }
    copy.send(text.as_bytes()).await?;
    copy.finish().await?;
    Ok(())
}

/// The columns that hold JSON; an array in any other is one of PostgreSQL's.
async fn document_columns(
    connection: &mut PgConnection,
    schema: &str,
    table: &str,
) -> Result<HashSet<String>, sqlx::Error> {
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT attname::text FROM pg_attribute
          WHERE attrelid = format('%I.%I', $1, $2)::regclass AND atttypid IN ('json'::regtype, 'jsonb'::regtype)",
    )
    .bind(schema)
    .bind(table)
    .fetch_all(connection)
    .await?;
    Ok(names.into_iter().collect())
}

fn columns<R: Serialize>(table: &'static str, rows: &[R]) -> Result<Option<Vec<String>>, ApplyError> {
    rows.first().map(|row| Ok(fields(table, row)?.keys().cloned().collect())).transpose()
}

fn fields<R: Serialize>(table: &'static str, row: &R) -> Result<Map<String, Value>, ApplyError> {
    match serde_json::to_value(row) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(serde::ser::Error::custom("a row has named fields")),
        Err(source) => Err(source),
    }
    .map_err(|source| ApplyError::Row { table, source })
}

/// A field in the text format of `COPY`.
fn push_field(text: &mut String, value: &Value, is_document: bool) {
    match value {
        Value::Null => text.push_str("\\N"),
        Value::String(word) if !is_document => push_escaped(text, word),
        Value::Array(items) if !is_document => push_escaped(text, &array(items)),
        other => push_escaped(text, &other.to_string()),
    }
}

/// An array as PostgreSQL writes it, every item in quotes.
fn array(items: &[Value]) -> String {
    let item = |item: &Value| match item {
        Value::Null => "NULL".to_owned(),
        Value::String(word) => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
        other => other.to_string(),
    };
    format!("{{{}}}", items.iter().map(item).collect::<Vec<_>>().join(","))
}

fn push_escaped(text: &mut String, word: &str) {
    for letter in word.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            other => text.push(other),
        }
    }
}
