//! The name of a value's source, as receivers see it.

use std::collections::{HashMap, HashSet};

use signalbox_datapoint_log::Origin;
use signalbox_projections::{fleet::queries::instance_names, identity::queries::token_names};
use sqlx::PgPool;
use uuid::Uuid;

/// For values that neither a plugin instance feeds nor an API token sent.
const NONE: &str = "api";

/// Names of the devices that send values.
pub(crate) struct Devices {
    /// Of plugin instances, by the channels that they are linked to.
    instances: HashMap<Uuid, String>,
    tokens: HashMap<Uuid, String>,
}

impl Devices {
    /// Loads the names for values of `channels` from `origins`.
    pub(crate) async fn load(
        pool: &PgPool,
        channels: impl IntoIterator<Item = Uuid>,
        origins: impl IntoIterator<Item = Origin>,
    ) -> Result<Self, sqlx::Error> {
        let tokens: HashSet<_> = origins.into_iter().filter_map(token).collect();
        Ok(Self {
            instances: instance_names(pool, channels).await?,
            tokens: token_names(pool, tokens).await?,
        })
    }

    /// The source of a value of `channel`: its plugin instance, or else the token that sent it.
    pub(crate) fn name(&self, channel: Uuid, origin: Origin) -> String {
        let token = || token(origin).and_then(|token| self.tokens.get(&token));
        self.instances.get(&channel).or_else(token).map_or(NONE, String::as_str).to_owned()
    }
}

fn token(origin: Origin) -> Option<Uuid> {
    match origin {
        Origin::Token(token) => Some(token),
        Origin::User(_) => None,
    }
}
