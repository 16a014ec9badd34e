//! Pages of documents that wait when the workers come, of which each parses one document at a time.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use reqwest::Client;
use sqlx::PgPool;

use super::{Rest, pages};
use crate::{
    report, size,
    system::{Api, Role, Servers, Signalbox, wait_until},
};

const WORKERS: [usize; 2] = [1, 2];
/// Pages of a digital document.
const PAGES: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(900);

/// The documents to read.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Documents of many pages.
    Digital,
    /// Pictures of a page, whose text has to be recognised.
    Scan,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Digital => "digital pages",
            Self::Scan => "pages to be recognised",
        }
    }

    /// One that differs from all others, so that it is read.
    fn document(self, name: &str) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Digital => Ok(pages::document(name, PAGES)),
            Self::Scan => {
                let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents/scan.pdf");
                let mut scan = fs::read(sample)?;
                scan.extend(format!("\n% {name}\n").bytes());
                Ok(scan)
            }
        }
    }
}

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let kinds =
        [(Kind::Digital, size::of("BENCH_DOCUMENTS", 200)?), (Kind::Scan, size::of("BENCH_SCANS", 30)?)];
    let servers = Servers::start().await?;
    let rest = Rest::start(&servers).await?;
    let pool = servers.database().await?;
    report::title("workers: pages of documents, one parser in each worker");
    for (kind, count) in kinds {
        let mut alone = None;
        for workers in WORKERS {
            let rate = backlog(&servers, &rest.api, &pool, (kind, count), workers).await?;
            let gain = rate / *alone.get_or_insert(rate);
            let name = format!("{}, {workers} workers", kind.name());
            report::figure(&name, rate, &format!("pages/s, {gain:.2} × one"));
        }
    }
    Ok(())
}

/// Pages in a second.
async fn backlog(
    servers: &Servers,
    api: &Api,
    pool: &PgPool,
    (kind, count): (Kind, u64),
    workers: usize,
) -> anyhow::Result<f64> {
    let newest = signalbox_event_store::head_position(pool).await?;
    submit(api, kind, count, workers).await?;
    let settings = Signalbox::new(servers, Role::Workers)?.with("SIGNALBOX_EXTRACTION__PARSERS", "1");
    let processes = (0..workers).map(|_| settings.start()).collect::<anyhow::Result<Vec<_>>>()?;
    let open = "SELECT count(*) = 0 FROM read.extraction_jobs WHERE due_at IS NOT NULL";
    let ended = || async move { Ok(sqlx::query_scalar(open).fetch_one(pool).await?) };
    wait_until("the end of all documents", TIMEOUT, ended).await?;
    processes.into_iter().for_each(|worker| worker.stop());
    let sql = "SELECT coalesce(sum((payload->'result'->>'page_count')::int) FILTER (WHERE event_type = 'extraction_completed'), 0),
                      count(*) FILTER (WHERE event_type = 'extraction_completed'),
                      extract(epoch FROM max(recorded_at) FILTER (WHERE event_type = 'extraction_completed')
                                       - min(recorded_at) FILTER (WHERE event_type = 'extraction_begun'))::float8
                 FROM events WHERE position > $1 AND aggregate_type = 'extraction_job'";
    let (pages, completed, seconds): (i64, i64, Option<f64>) =
        sqlx::query_as(sql).bind(newest).fetch_one(pool).await?;
    ensure!(completed as u64 == count, "only {completed} of {count} documents gave their text");
    Ok(pages as f64 / seconds.context("no document was read")?)
}

async fn submit(api: &Api, kind: Kind, count: u64, workers: usize) -> anyhow::Result<()> {
    let client = Client::builder().no_proxy().build()?;
    for number in 0..count {
        let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"document.pdf\"\r\n\r\n";
        let document = kind.document(&format!("document {number} for {workers}"))?;
        let body = [head.as_bytes(), &document, b"\r\n--b--\r\n"].concat();
        let request = client.post(format!("http://{}/api/v1/jobs", api.address)).bearer_auth(api.token());
        let request = request.header("content-type", "multipart/form-data; boundary=b").body(body);
        request.send().await?.error_for_status()?;
    }
    Ok(())
}
