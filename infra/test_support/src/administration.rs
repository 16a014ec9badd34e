use sqlx::{Connection, Executor, PgConnection};

/// Makes the partitions that a service would make when it starts: in each test, that would take a tenth of its time.
const DAYS: &str = "
    SELECT add_day(parent::regclass, (now() AT TIME ZONE 'UTC')::date + ahead)
      FROM unnest(ARRAY['datapoint_log', 'datapoint_batches', 'datapoint_tombstones']) AS parent,
           generate_series(0, 3) AS ahead";

/// Makes the database `name`, whose address is `url`, migrates it and adds the days from today on.
pub(crate) async fn migrated_database(server: &str, url: &str, name: &str) {
    administer(server, &format!("CREATE DATABASE {name}")).await;
    let pool = signalbox_database::connect(url, 1).await.expect("open the database");
    signalbox_database::migrate(&pool).await.expect("migrate the database");
    pool.execute(DAYS).await.expect("add the days");
    // A database that somebody is connected to cannot be copied.
    pool.close().await;
}

pub(crate) async fn administer(url: &str, statement: &str) {
    let mut connection = PgConnection::connect(url).await.expect("reach PostgreSQL");
    connection.execute(statement).await.expect(statement);
    connection.close().await.expect("close the connection");
}
