use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::Value;
use sqlx::{FromRow, PgConnection, postgres::PgRow};
use uuid::Uuid;

use crate::ApplyError;

/// A row of a read model; its serialised fields are the table's columns.
pub(crate) trait ReadRow: Serialize + for<'r> FromRow<'r, PgRow> + Send + Unpin {
    const TABLE: &'static str;

    fn id(&self) -> Uuid;
}

/// The rows that a batch touches: read once, changed in memory, written once.
pub(crate) struct Table<R> {
    rows: HashMap<Uuid, Option<R>>,
    dirty: HashSet<Uuid>,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self { rows: HashMap::new(), dirty: HashSet::new() }
    }
}

impl<R: ReadRow> Table<R> {
    /// The rows `ids` as they are now.
    pub(crate) async fn load(
        connection: &mut PgConnection,
        schema: &str,
        ids: HashSet<Uuid>,
    ) -> Result<Self, ApplyError> {
        let mut table = Self::default();
        if ids.is_empty() {
            return Ok(table);
        }
        let sql = format!("SELECT * FROM {schema}.{} WHERE id = ANY($1)", R::TABLE);
        let ids: Vec<_> = ids.into_iter().collect();
        let rows: Vec<R> = sqlx::query_as(&sql).bind(ids).fetch_all(connection).await?;
        table.rows = rows.into_iter().map(|row| (row.id(), Some(row))).collect();
        Ok(table)
    }

    pub(crate) fn put(&mut self, row: R) {
        self.dirty.insert(row.id());
        self.rows.insert(row.id(), Some(row));
    }

    /// The row `id`, to be changed.
    pub(crate) fn change(&mut self, id: Uuid) -> Option<&mut R> {
        let row = self.rows.get_mut(&id)?.as_mut()?;
        self.dirty.insert(id);
        Some(row)
    }

    pub(crate) fn remove(&mut self, id: Uuid) {
        self.dirty.insert(id);
        self.rows.insert(id, None);
    }

    /// Writes what has changed.
    pub(crate) async fn write(self, connection: &mut PgConnection, schema: &str) -> Result<(), ApplyError> {
        let changed = self.rows.into_iter().filter(|(id, _)| self.dirty.contains(id));
        let (kept, removed): (Vec<_>, Vec<_>) = changed.partition(|(_, row)| row.is_some());
        if !removed.is_empty() {
            let ids: Vec<_> = removed.into_iter().map(|(id, _)| id).collect();
            let sql = format!("DELETE FROM {schema}.{} WHERE id = ANY($1)", R::TABLE);
            sqlx::query(&sql).bind(ids).execute(&mut *connection).await?;
        }
        let rows: Vec<_> = kept.into_iter().filter_map(|(_, row)| row).collect();
        upsert(connection, schema, R::TABLE, "id", &rows).await
    }
}

/// Writes `rows` into `schema.table`, replacing those with the same `key`.
pub(crate) async fn upsert<R: Serialize>(
    connection: &mut PgConnection,
    schema: &str,
    table: &'static str,
    key: &str,
    rows: &[R],
) -> Result<(), ApplyError> {
    let json = serde_json::to_value(rows).map_err(|source| ApplyError::Row { table, source })?;
    let Some(columns) = json.get(0).and_then(Value::as_object).map(column_names) else { return Ok(()) };
    let excluded = columns.iter().map(|column| format!("excluded.{column}")).collect::<Vec<_>>().join(", ");
    let columns = columns.join(", ");
    let sql = format!(
        "INSERT INTO {schema}.{table} ({columns})
         SELECT {columns} FROM jsonb_populate_recordset(NULL::{schema}.{table}, $1)
             ON CONFLICT ({key}) DO UPDATE SET ({columns}) = ROW({excluded})"
    );
    sqlx::query(&sql).bind(json).execute(connection).await?;
    Ok(())
}

fn column_names(row: &serde_json::Map<String, Value>) -> Vec<String> {
    row.keys().cloned().collect()
}
