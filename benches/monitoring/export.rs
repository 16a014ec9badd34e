//! An experiment of 1,000,000 datapoints as CSV, beside `COPY … TO` of the same rows.

use std::{
    io::{BufRead, Read},
    time::Instant,
};

use anyhow::{Context as _, ensure};
use futures::TryStreamExt;
use serde_json::json;
use sqlx::postgres::PgPoolCopyExt;

use super::points;
use crate::{
    load, report, size,
    system::{Role, Servers, Signalbox},
};

pub async fn run() -> anyhow::Result<()> {
    let count = size::of("BENCH_CSV_ROWS", 1_000_000)? as usize;
    let servers = Servers::start().await?;
    let (ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let plain = signalbox_database::connect_as(
        &servers.create_database("plain").await?,
        4,
        signalbox_database::Class::Maintenance,
    )
    .await?;
    points::make_table(&plain).await?;
    let events = points::add_events(&api, 500).await?;
    let experiment = api.post("/api/v1/experiments", &json!({"name": "bench"})).await?;
    load::send_all(api.address, 8, &points::requests(&api, &events, count), 201)?;
    points::copy(&plain, &points::copy_rows(&events, count)).await?;
    points::wait_until_folded(&servers.database().await?).await?;

    let id = experiment["public_id"].as_str().context("an experiment without an id")?;
    let before = ours.resident_mib()?;
    ours.forget_peak()?;
    let start = Instant::now();
    let rows = export(&api, id)?;
    let our_seconds = start.elapsed().as_secs_f64();
    let more = ours.peak_mib()? - before;
    ensure!(rows == count + 1, "{rows} rows came");
    let start = Instant::now();
    let copy = "COPY (SELECT * FROM points ORDER BY time) TO STDOUT WITH (FORMAT csv, HEADER)";
    let mut copied = 0;
    let mut pieces = plain.copy_out_raw(copy).await?;
    while let Some(piece) = pieces.try_next().await? {
        copied += piece.len();
    }
    ensure!(copied > count * 40, "{copied} bytes came");
    let their_seconds = start.elapsed().as_secs_f64();
    report::title(&format!("monitoring: {count} datapoints as CSV; signalbox, COPY TO"));
    report::pair("time", our_seconds, their_seconds, "s");
    report::bounded("ratio", our_seconds / their_seconds, "", 1.5);
    report::bounded("more resident memory", more, "MiB", 32.0);
    Ok(())
}

/// Reads the export to its end; returns how many lines it has.
fn export(api: &crate::system::Api, id: &str) -> anyhow::Result<usize> {
    let mut connection = load::Connection::open(api.address)?;
    let request = format!(
        "GET /api/v1/experiments/{id}/export/csv HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        api.token()
    );
    connection.send(request.as_bytes())?;
    ensure!(connection.answer()?.status == 200, "the export was refused");
    // Pieces are written with their lengths between them, on lines without a comma.
    let reader = std::io::BufReader::with_capacity(1 << 20, connection.reader().take(u64::MAX));
    let mut lines = 0;
    for line in reader.split(b'\n') {
        lines += usize::from(line?.contains(&b','));
    }
    Ok(lines)
}
