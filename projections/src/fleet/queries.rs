//! What the gateway asks about packages, instances and mappings.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::{InstanceRow, MappingRow, PackageRow};
use crate::page::{Page, and_eq, and_like, list};

/// The package `id`.
///
/// # Errors
/// The database's error.
pub async fn package(pool: &PgPool, id: Uuid) -> Result<Option<PackageRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.plugin_packages WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// All packages, oldest first.
///
/// # Errors
/// The database's error.
pub async fn packages(pool: &PgPool) -> Result<Vec<PackageRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.plugin_packages ORDER BY position").fetch_all(pool).await
}

/// An instance, and when a controller last said how it is.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct Instance {
    /// As the log has it.
    #[sqlx(flatten)]
    pub row: InstanceRow,
    /// `None` when no controller ever said so.
    pub reported_at: Option<DateTime<Utc>>,
}

/// Which instances are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct InstanceFilter {
    /// Id of the class.
    pub plugin_id: Option<String>,
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
    /// Whether a controller is to run them.
    pub enabled: Option<bool>,
}

const INSTANCES: &str =
    " FROM read.plugin_instances i LEFT JOIN ops.plugin_presence p ON p.instance_id = i.id";

/// The instance `id`.
///
/// # Errors
/// The database's error.
pub async fn instance(pool: &PgPool, id: Uuid) -> Result<Option<Instance>, sqlx::Error> {
    let sql = format!("SELECT i.*, p.reported_at {INSTANCES} WHERE i.id = $1");
    sqlx::query_as(&sql).bind(id).fetch_optional(pool).await
}

/// A page of instances, newest first, and how many there are.
///
/// # Errors
/// The database's error.
pub async fn instances(
    pool: &PgPool,
    filter: &InstanceFilter,
    page: Page,
) -> Result<(Vec<Instance>, i64), sqlx::Error> {
    list(pool, "SELECT i.*, p.reported_at", "i.created_at DESC, i.id DESC", page, |query| {
        query.push(INSTANCES).push(" WHERE true");
        and_eq(query, "i.plugin_id", filter.plugin_id.as_deref());
        and_like(query, "i.name", filter.name.as_deref());
        and_eq(query, "i.enabled", filter.enabled);
    })
    .await
}

/// Whether an instance other than `id` has this name.
///
/// # Errors
/// The database's error.
pub async fn is_instance_name_taken(pool: &PgPool, name: &str, id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM read.plugin_instances WHERE name = $1 AND id <> $2)")
        .bind(name)
        .bind(id)
        .fetch_one(pool)
        .await
}

/// A link to a channel that was deleted is none.
const MAPPINGS: &str =
    "SELECT m.id, m.instance_id, m.position, m.channel_id, m.channel_name, m.direction, m.unit,
           c.id AS event_id, m.created_at
      FROM read.channel_mappings m LEFT JOIN read.channels c ON c.id = m.event_id AND c.deleted_at IS NULL";

/// The mappings of `instances`, each instance's in the order in which they were made.
///
/// # Errors
/// The database's error.
pub async fn mappings(pool: &PgPool, instances: &[Uuid]) -> Result<Vec<MappingRow>, sqlx::Error> {
    let sql = format!("{MAPPINGS} WHERE m.instance_id = ANY($1) ORDER BY m.instance_id, m.position, m.id");
    sqlx::query_as(&sql).bind(instances).fetch_all(pool).await
}

/// The mapping `id`.
///
/// # Errors
/// The database's error.
pub async fn mapping(pool: &PgPool, id: Uuid) -> Result<Option<MappingRow>, sqlx::Error> {
    sqlx::query_as(&format!("{MAPPINGS} WHERE m.id = $1")).bind(id).fetch_optional(pool).await
}

/// The names of the instances that are linked to `channels`, by channel; of several, the first that was linked.
///
/// # Errors
/// The database's error.
pub async fn instance_names(
    pool: &PgPool,
    channels: impl IntoIterator<Item = Uuid>,
) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let channels: Vec<_> = channels.into_iter().collect();
    let names: Vec<_> = sqlx::query_as(
        "SELECT DISTINCT ON (m.event_id) m.event_id, i.name
           FROM read.channel_mappings m JOIN read.plugin_instances i ON i.id = m.instance_id
          WHERE m.event_id = ANY($1) ORDER BY m.event_id, m.position",
    )
    .bind(channels)
    .fetch_all(pool)
    .await?;
    Ok(names.into_iter().collect())
}

/// Notes that a controller has just said how `instance` is.
///
/// # Errors
/// The database's error.
pub async fn note_report(pool: &PgPool, instance: Uuid, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.plugin_presence AS p (instance_id, reported_at) VALUES ($1, $2)
         ON CONFLICT (instance_id) DO UPDATE SET reported_at = greatest(p.reported_at, excluded.reported_at)",
    )
    .bind(instance)
    .bind(now)
    .execute(pool)
    .await
    .map(|_| ())
}

/// Claims `instances` for `controller` until `until`, those that no other one has; gives back the others that it has had.
/// Gives back which it has.
///
/// # Errors
/// The database's error.
pub async fn claim_instances(
    pool: &PgPool,
    controller: &str,
    instances: &[Uuid],
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(
        "WITH given_back AS (DELETE FROM ops.plugin_claims WHERE controller = $1 AND instance_id <> ALL($2))
         INSERT INTO ops.plugin_claims AS c (instance_id, controller, until)
         SELECT id, $1, $4 FROM read.plugin_instances WHERE id = ANY($2) ORDER BY id
         ON CONFLICT (instance_id) DO UPDATE SET controller = excluded.controller, until = excluded.until
          WHERE c.controller = excluded.controller OR c.until <= $3
         RETURNING instance_id",
    )
    .bind(controller)
    .bind(instances)
    .bind(now)
    .bind(until)
    .fetch_all(pool)
    .await
}

/// Forgets who ran an instance that is gone, and when anybody spoke of it.
///
/// # Errors
/// The database's error.
pub async fn forget_controllers(pool: &PgPool, instance: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH claims AS (DELETE FROM ops.plugin_claims WHERE instance_id = $1)
         DELETE FROM ops.plugin_presence WHERE instance_id = $1",
    )
    .bind(instance)
    .execute(pool)
    .await
    .map(|_| ())
}
