use std::time::Instant;

use futures::StreamExt;
use signalbox_projections::{Projection, identity::IdentityProjection, transfer::TransferProjection};
use sqlx::{Executor, PgConnection, PgPool};

/// Seconds to COPY the rows of all read models into empty tables of the same shape with the same indexes.
pub async fn seconds(pool: &PgPool) -> anyhow::Result<f64> {
    let mut connection = pool.acquire().await?;
    let mut seconds = 0.0;
    connection.execute("CREATE SCHEMA bench").await?;
    for table in IdentityProjection::TABLES.iter().chain(TransferProjection::TABLES) {
        let rows = rows_of(&mut connection, table).await?;
        let empty = format!("CREATE TABLE bench.{table} (LIKE read.{table} INCLUDING ALL)");
        connection.execute(empty.as_str()).await?;
        let start = Instant::now();
        let mut copy = connection.copy_in_raw(&format!("COPY bench.{table} FROM STDIN")).await?;
        copy.send(rows).await?;
        copy.finish().await?;
        seconds += start.elapsed().as_secs_f64();
    }
    connection.execute("DROP SCHEMA bench CASCADE").await?;
    Ok(seconds)
}

async fn rows_of(connection: &mut PgConnection, table: &str) -> anyhow::Result<Vec<u8>> {
    let mut rows = Vec::new();
    let mut out = connection.copy_out_raw(&format!("COPY read.{table} TO STDOUT")).await?;
    while let Some(part) = out.next().await {
        rows.extend_from_slice(&part?);
    }
    Ok(rows)
}
