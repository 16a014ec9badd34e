//! Connections to PostgreSQL and NATS, for every command.

use anyhow::Context as _;
use serde_json::json;
use signalbox_config::{Config, Secret};
use signalbox_database::Class;
use signalbox_messaging::Bus;
use sqlx::PgPool;

use crate::embedded;

/// The database that is configured, or the private one that runs in the storage folder.
pub(crate) async fn database(config: &Config) -> anyhow::Result<PgPool> {
    database_for(config, Class::Interactive).await
}

/// The same database, for statements of `class`.
pub(crate) async fn database_for(config: &Config, class: Class) -> anyhow::Result<PgPool> {
    let url = address(&config.database.url, config, embedded::DATABASE_FILE, "DATABASE_URL")?;
    Ok(signalbox_database::connect_as(url.expose(), config.database.max_connections, class).await?)
}

/// The bus that is configured, or the private one that runs in the storage folder.
pub(crate) async fn bus(config: &Config) -> anyhow::Result<Bus> {
    let url = address(&config.nats.url, config, embedded::BUS_FILE, "NATS_URL")?;
    Ok(Bus::connect(url.expose()).await?.with_replicas(config.nats.replicas))
}

/// Brings the schema up to date.
pub(crate) async fn migrate(config: &Config, json: bool) -> anyhow::Result<()> {
    signalbox_database::migrate(&database(config).await?).await?;
    if json {
        println!("{}", json!({"up_to_date": true}));
    } else {
        println!("The database schema is up to date.");
    }
    Ok(())
}

/// Whether a database is configured, or a private one runs.
pub(crate) fn database_is_known(config: &Config) -> bool {
    !config.database.url.is_empty() || config.storage.folder.join(embedded::DATABASE_FILE).exists()
}

fn address(configured: &Secret, config: &Config, file: &str, name: &str) -> anyhow::Result<Secret> {
    if !configured.is_empty() {
        return Ok(configured.clone());
    }
    let path = config.storage.folder.join(file);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "{name} is not set, and no `signalbox up` runs in {}: start it, or set {name}",
            config.storage.folder.display()
        )
    })?;
    Ok(Secret::new(text.trim().to_owned()))
}
