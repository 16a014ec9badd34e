//! How rules, webhooks, dashboards and jobs came to be what they are, and their way back.

mod diff;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use signalbox_domain::kernel::Metadata;
use signalbox_projections::{
    Listed, Sorting,
    register::{At, Resource, Version, past, place_of},
};
use utoipa::ToSchema;
use uuid::Uuid;

use self::diff::{ChangeOut, diff};
use crate::{past::there, problem::Problem, services::replica::Database};

/// Replaces a secret.
const HIDDEN: &str = "[hidden]";
/// The field of a version that is compared and never shown.
pub(crate) const SECRET: &str = "secret";

/// A version that somebody made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionOut {
    /// As in `ETag`; numbers are left out where something else happened than a change by somebody.
    version: i64,
    /// Of its event in the log.
    position: i64,
    time: DateTime<Utc>,
    /// Its author: `user:<id>`, `agent:<id>` or `system:<part>`.
    actor: String,
    /// Type of its event, e.g. `rule_updated`.
    r#type: String,
    /// The version that came back with it; null for one that is new.
    restored_version: Option<i64>,
    /// How it differs from the version before.
    changes: Vec<ChangeOut>,
}

impl Listed for VersionOut {
    const SORTING: Sorting = Sorting::newest_first(("version", "sequence"), &[], "sequence");
}

/// Which version comes back.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RestoreIn {
    /// Any that the resource has had.
    #[serde(deserialize_with = "version")]
    #[schema(minimum = 1)]
    pub(crate) version: i64,
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let version = i64::deserialize(deserializer)?;
    if version < 1 { Err(D::Error::custom("must be at least 1")) } else { Ok(version) }
}

impl From<Version<Value>> for VersionOut {
    fn from(version: Version<Value>) -> Self {
        let Version { event, before, after } = version;
        let actor = event.metadata["actor"].as_str().unwrap_or_default().to_owned();
        let restored_version = event.metadata["restored_version"].as_i64();
        let mut changes = diff(before, after);
        changes.iter_mut().for_each(ChangeOut::hide_secret);
        Self {
            version: event.sequence,
            position: event.position,
            time: event.recorded_at,
            actor,
            r#type: event.event_type,
            restored_version,
            changes,
        }
    }
}

/// `shown` without `fields`, which change by themselves.
pub(crate) fn content<T: Serialize>(shown: &T, fields: &[&str]) -> Option<Value> {
    let mut content = serde_json::to_value(shown).ok()?;
    content.as_object_mut()?.retain(|field, _| !fields.contains(&field.as_str()));
    Some(content)
}

/// Where the version that is to come back is in the log.
pub(crate) async fn place<R: Resource>(database: &Database, id: Uuid, version: i64) -> Result<At, Problem> {
    let place = place_of::<R>(&database.primary, id, version).await?;
    place.ok_or_else(|| Problem::field("version", "must be one that the resource has had: see its history"))
}

/// The resource `id` as of its version `version`; `what` names its kind to people.
pub(crate) async fn earlier<R: Resource>(
    database: &Database,
    what: &str,
    id: Uuid,
    version: i64,
) -> Result<R, Problem> {
    let at = place::<R>(database, id, version).await?;
    there(what, past::<R>(&database.primary, id, at).await?)
}

/// `metadata` of a command that brings `version` back.
pub(crate) fn restoring(metadata: Metadata, version: i64) -> Metadata {
    Metadata { restored_version: Some(version), ..metadata }
}
