use std::collections::{HashMap, HashSet};

use signalbox_event_store::RecordedEvent;
use sqlx::{FromRow, PgConnection, postgres::PgRow};
use uuid::Uuid;

use crate::{
    ApplyError,
    write::{insert, upsert},
};

/// A row of a read model; its serialised fields are the table's columns.
pub trait ReadRow: serde::Serialize + for<'r> FromRow<'r, PgRow> + Send + Unpin {
    /// Its table.
    const TABLE: &'static str;

    /// Its key.
    fn id(&self) -> Uuid;
}

/// Rows in memory: read when an event changes them, written when they have rested for a batch.
pub(crate) struct Table<R> {
    rows: HashMap<Uuid, Kept<R>>,
    batch: u64,
}

struct Kept<R> {
    /// `None` when it has been removed.
    row: Option<R>,
    stored: bool,
    changed: bool,
    /// The last batch that touched it.
    batch: u64,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self { rows: HashMap::new(), batch: 0 }
    }
}

impl<R: ReadRow> Table<R> {
    /// Starts a batch that changes the rows `ids`; reads those that are not in memory.
    pub(crate) async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        mut ids: HashSet<Uuid>,
    ) -> Result<(), ApplyError> {
        self.batch += 1;
        ids.retain(|id| self.touch(*id).is_none());
        if ids.is_empty() {
            return Ok(());
        }
        let sql = format!("SELECT * FROM {schema}.{} WHERE id = ANY($1)", R::TABLE);
        let ids: Vec<_> = ids.into_iter().collect();
        let rows: Vec<R> = sqlx::query_as(&sql).bind(ids).fetch_all(connection).await?;
        let batch = self.batch;
        let kept = |row: R| (row.id(), Kept { row: Some(row), stored: true, changed: false, batch });
        self.rows.extend(rows.into_iter().map(kept));
        Ok(())
    }

    fn touch(&mut self, id: Uuid) -> Option<&mut Kept<R>> {
        let kept = self.rows.get_mut(&id)?;
        kept.batch = self.batch;
        Some(kept)
    }

    /// Adds a row that there has not been, or takes the place of one that is here.
    pub(crate) fn put(&mut self, row: R) {
        let id = row.id();
        // A widget that was removed and restored before that was written is in the table all the time.
        let stored = self.rows.get(&id).is_some_and(|kept| kept.stored);
        self.rows.insert(id, Kept { row: Some(row), stored, changed: true, batch: self.batch });
    }

    /// The row `id`, to be changed.
    pub(crate) fn change(&mut self, id: Uuid) -> Option<&mut R> {
        let kept = self.touch(id)?;
        kept.changed = true;
        kept.row.as_mut()
    }

    /// The row `id`, to look at.
    pub(crate) fn get(&self, id: Uuid) -> Option<&R> {
        self.rows.get(&id)?.row.as_ref()
    }

    /// All rows that are here, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.rows.values().filter_map(|kept| kept.row.as_ref())
    }

    pub(crate) fn remove(&mut self, id: Uuid) {
        if let Some(kept) = self.touch(id) {
            (kept.row, kept.changed) = (None, true);
        }
    }

    /// Removes those rows in memory for which `is_gone` holds; the caller sees to the others.
    pub(crate) fn remove_where(&mut self, is_gone: impl Fn(&R) -> bool) {
        for kept in self.rows.values_mut().filter(|kept| kept.row.as_ref().is_some_and(&is_gone)) {
            (kept.row, kept.changed) = (None, true);
        }
    }

    /// Changes those rows in memory for which `is_meant` holds; the caller sees to the others.
    pub(crate) fn change_where(&mut self, is_meant: impl Fn(&R) -> bool, change: impl Fn(&mut R)) {
        for kept in self.rows.values_mut() {
            if let Some(row) = kept.row.as_mut().filter(|row| is_meant(row)) {
                change(row);
                kept.changed = true;
            }
        }
    }

    pub(crate) fn contains(&self, id: Uuid) -> bool {
        self.rows.contains_key(&id)
    }

    /// Writes changed rows and drops them. Of more than `keep` rows those are dropped that this batch did not touch;
    /// with 0 all are. Returns the keys of rows that were written for the first time.
    pub(crate) async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<HashSet<Uuid>, ApplyError> {
        if self.rows.len() <= keep {
            return Ok(HashSet::new());
        }
        let batch = self.batch;
        let (mut removed, mut changed, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for (id, kept) in self.rows.extract_if(|_, kept| keep == 0 || kept.batch < batch) {
            match kept.row {
                Some(row) if kept.changed && kept.stored => changed.push(row),
                Some(row) if kept.changed => new.push(row),
                None if kept.stored => removed.push(id),
                _ => {}
            }
        }
        if !removed.is_empty() {
            let sql = format!("DELETE FROM {schema}.{} WHERE id = ANY($1)", R::TABLE);
            sqlx::query(&sql).bind(removed).execute(&mut *connection).await?;
        }
        upsert(connection, schema, R::TABLE, "id", &changed).await?;
        insert(connection, schema, R::TABLE, &new).await?;
        Ok(new.iter().map(R::id).collect())
    }
}

/// Those of `aggregate` that `events` change and that were there before.
pub(crate) fn changed_ids<E>(events: &[(&RecordedEvent, E)], aggregate: &str) -> HashSet<Uuid> {
    let mut created = HashSet::new();
    let mut changed = HashSet::new();
    for (event, _) in events.iter().filter(|(event, _)| event.aggregate_type == aggregate) {
        if event.sequence == 1 {
            created.insert(event.aggregate_id);
        } else if !created.contains(&event.aggregate_id) {
            changed.insert(event.aggregate_id);
        }
    }
    changed
}
