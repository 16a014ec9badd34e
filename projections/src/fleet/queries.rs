//! Queries about packages, instances and mappings.

use signalbox_boxed::boxed;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use signalbox_domain::kernel::{ChannelId, FirmwareUpdateId};
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use super::{InstanceRow, MappingRow, PackageRow};
use crate::page::{Listed, Order, Page, Sorting, and_eq, and_like, list};

/// The package `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn package(pool: &PgPool, id: Uuid) -> Result<Option<PackageRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.plugin_packages WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// All packages, oldest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn packages(pool: &PgPool) -> Result<Vec<PackageRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.plugin_packages ORDER BY position").fetch_all(pool).await
}

/// An instance, and the time of its controller's last report.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct Instance {
    /// As the log has it.
    #[row(flatten)]
    pub row: InstanceRow,
    /// `None` if no controller has reported yet.
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
#[boxed]
pub async fn instance(pool: &PgPool, id: Uuid) -> Result<Option<Instance>, sqlx::Error> {
    let sql = format!("SELECT i.*, p.reported_at {INSTANCES} WHERE i.id = $1");
    sqlx::query_as(&sql).bind(id).fetch_optional(pool).await
}

impl Listed for Instance {
    const SORTING: Sorting =
        Sorting::oldest_first(("created_on", "i.created_at"), &[("instance_name", "i.name")], "i.id");
}

/// A page of instances and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn instances(
    pool: &PgPool,
    filter: &InstanceFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<Instance>, i64), sqlx::Error> {
    list(pool, "SELECT i.*, p.reported_at", order, page, |query| {
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
#[boxed]
pub async fn is_instance_name_taken(pool: &PgPool, name: &str, id: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM read.plugin_instances WHERE name = $1 AND id <> $2)")
        .bind(name)
        .bind(id)
        .fetch_one(pool)
        .await
}

/// Mappings; a link to a deleted channel is left out.
const MAPPINGS: &str =
    "SELECT m.id, m.instance_id, m.position, m.channel_id, m.channel_name, m.direction, m.unit,
           c.id AS event_id, m.created_at
      FROM read.channel_mappings m LEFT JOIN read.channels c ON c.id = m.event_id AND c.deleted_at IS NULL";

/// The mappings of `instances`, each instance's in the order in which they were made.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn mappings(pool: &PgPool, instances: &[Uuid]) -> Result<Vec<MappingRow>, sqlx::Error> {
    let sql = format!("{MAPPINGS} WHERE m.instance_id = ANY($1) ORDER BY m.instance_id, m.position, m.id");
    sqlx::query_as(&sql).bind(instances).fetch_all(pool).await
}

/// The mapping `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn mapping(pool: &PgPool, id: Uuid) -> Result<Option<MappingRow>, sqlx::Error> {
    sqlx::query_as(&format!("{MAPPINGS} WHERE m.id = $1")).bind(id).fetch_optional(pool).await
}

/// Those of `events` that exist and that no instance but `instance` maps, with their names, oldest first. Asked for `values`, also
/// deleted ones whose values stay.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn unshared_events(
    pool: &PgPool,
    instance: Uuid,
    events: &[ChannelId],
    values: bool,
) -> Result<Vec<(ChannelId, String)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT c.id, c.name FROM read.channels c
          WHERE c.id = ANY($2) AND (c.deleted_at IS NULL OR $3 AND NOT c.values_deleted) AND NOT EXISTS (
                SELECT FROM read.channel_mappings m WHERE m.event_id = c.id AND m.instance_id <> $1)
          ORDER BY c.created_at, c.number",
    )
    .bind(instance)
    .bind(events)
    .bind(values)
    .fetch_all(pool)
    .await
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

/// Notes that a controller has just reported the status of `instance`.
///
/// # Errors
/// The database's error.
#[boxed]
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

/// A controller that claims instances.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub controller: &'a str,
    /// This run of it, and the one before, which it replaces; `None` if it does not say.
    pub session: Option<&'a str>,
    pub previous: Option<&'a str>,
}

/// Claims `instances` for a controller until `until`, those that no other one has, and gives back the others that it has had;
/// returns which it has. `None` if another run of a controller with this name has some at `now`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn claim_instances(
    pool: &PgPool,
    claimant: &Claimant<'_>,
    instances: &[Uuid],
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Option<Vec<Uuid>>, sqlx::Error> {
    // Another run of the controller holds claims: this one is not the one that was started again.
    let sessions: Vec<_> = [claimant.session, claimant.previous].into_iter().flatten().collect();
    let is_taken: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM ops.plugin_claims
                         WHERE controller = $1 AND until > $2 AND cardinality($3::text[]) > 0 AND session <> ALL($3::text[]))",
    )
    .bind(claimant.controller)
    .bind(now)
    .bind(&sessions)
    .fetch_one(pool)
    .await?;
    if is_taken {
        return Ok(None);
    }
    let held = sqlx::query_scalar(
        "WITH given_back AS (DELETE FROM ops.plugin_claims WHERE controller = $1 AND instance_id <> ALL($2::uuid[]))
         INSERT INTO ops.plugin_claims AS c (instance_id, controller, until, session)
         SELECT id, $1, $4, $5::text FROM read.plugin_instances WHERE id = ANY($2::uuid[]) ORDER BY id
         ON CONFLICT (instance_id) DO UPDATE
            SET controller = excluded.controller, until = excluded.until, session = excluded.session
          WHERE c.until <= $3
             OR c.controller = excluded.controller
                AND (c.session IS NULL OR excluded.session IS NULL OR c.session = ANY($6::text[]))
         RETURNING instance_id",
    )
    .bind(claimant.controller)
    .bind(instances)
    .bind(now)
    .bind(until)
    .bind(claimant.session)
    .bind(&sessions)
    .fetch_all(pool)
    .await?;
    Ok(Some(held))
}

/// Deletes claims and report times of instances that no longer exist.
///
/// # Errors
/// The database's error.
#[boxed]
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

/// The version that the firmware update `id` brings, unless it was deleted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn firmware_release(pool: &PgPool, id: FirmwareUpdateId) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT release FROM read.firmware_updates WHERE id = $1")
        .bind(id)
        .fetch_optional(pool)
        .await
}
