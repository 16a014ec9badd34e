use sqlx::{Connection, Executor, PgConnection};

/// Makes the database `name`, whose address is `url`, and migrates it.
pub(crate) async fn migrated_database(server: &str, url: &str, name: &str) {
    administer(server, &format!("CREATE DATABASE {name}")).await;
    let pool = signalbox_database::connect(url, 1).await.expect("open the database");
    signalbox_database::migrate(&pool).await.expect("migrate the database");
    // A database that somebody is connected to cannot be copied.
    pool.close().await;
}

pub(crate) async fn administer(url: &str, statement: &str) {
    let mut connection = PgConnection::connect(url).await.expect("reach PostgreSQL");
    connection.execute(statement).await.expect(statement);
    connection.close().await.expect("close the connection");
}
