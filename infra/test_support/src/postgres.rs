use signalbox_embedded::{Postgres, PostgresOptions};
use sqlx::{Connection, Executor, PgConnection};
use tokio::sync::OnceCell;

use crate::home;

const TEMPLATE: &str = "signalbox_template";

/// Never dropped: the kernel ends the server with this process.
static SHARED: OnceCell<Postgres> = OnceCell::const_new();

/// A new database with today's schema, as its URL.
pub async fn fresh_database() -> String {
    let postgres = SHARED.get_or_init(start).await;
    let name = home::unique("test");
    administer(postgres, &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await;
    postgres.url(&name)
}

/// Nothing here has to outlive a crash of the machine, so nothing waits for the disk.
async fn start() -> Postgres {
    let settings = [("fsync", "off"), ("full_page_writes", "off"), ("max_connections", "500")];
    let mut options = PostgresOptions::new(home::of_postgres());
    options.settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let postgres = Postgres::start(options).await.expect("start PostgreSQL");
    administer(&postgres, &format!("CREATE DATABASE {TEMPLATE}")).await;
    let pool = signalbox_database::connect(&postgres.url(TEMPLATE), 1).await.expect("open the template");
    signalbox_database::migrate(&pool).await.expect("migrate the template");
    // A database that somebody is connected to cannot be copied.
    pool.close().await;
    postgres
}

async fn administer(postgres: &Postgres, statement: &str) {
    let mut connection = PgConnection::connect(&postgres.url("postgres")).await.expect("reach PostgreSQL");
    connection.execute(statement).await.expect(statement);
    connection.close().await.expect("close the connection");
}
