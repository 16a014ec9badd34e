use std::{io::Write, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use signalbox_event_store::{LogFilter, LogOrder, Moment, RecordedEvent, SearchError, search};
use signalbox_gateway::LogEventOut;
use signalbox_projections::register::stream_state;
use sqlx::PgPool;
use tokio::time::sleep;
use uuid::Uuid;

/// How often new events are looked for.
const POLL: Duration = Duration::from_millis(500);
/// Events that are read at a time.
const PIECE: i64 = 500;

/// Which events are printed.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// How many of the newest ones.
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(i64).range(0..=PIECE))]
    count: i64,
    /// Follow new events, until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
    /// Only of this kind of stream, e.g. transfer.
    #[arg(long)]
    stream_type: Option<String>,
    /// Only of this stream.
    #[arg(long, requires = "stream_type")]
    stream_id: Option<Uuid>,
    /// Only events of this kind, e.g. transfer_failed.
    #[arg(long)]
    event_type: Option<String>,
    /// Only by this one: user:<id>, agent:<id> or system:<part>.
    #[arg(long)]
    actor: Option<String>,
    /// Only events of this causal trace.
    #[arg(long)]
    correlation: Option<String>,
    /// One line of JSON for each event.
    #[arg(long)]
    json: bool,
}

/// Selection and format of the output.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Position of an event, or kind of a stream.
    what: String,
    /// Key of the stream.
    id: Option<Uuid>,
    /// The stream as it was at a time (RFC 3339) or position.
    #[arg(long, requires = "id")]
    at: Option<String>,
    /// JSON for programs: on one line.
    #[arg(long)]
    json: bool,
}

/// Prints the newest events, oldest first, and follows new ones.
pub(super) async fn tail(pool: &PgPool, args: TailArgs) -> anyhow::Result<()> {
    let TailArgs { count, follow, stream_type, stream_id, event_type, actor, correlation, json } = args;
    let filter = LogFilter { stream_type, stream_id, event_type, actor, correlation, ..LogFilter::default() };
    let mut seen = signalbox_event_store::head_position(pool).await?;
    let newest = LogFilter { last: Some(seen), ..filter.clone() };
    for event in search(pool, &newest, LogOrder::NewestFirst, count).await?.into_iter().rev() {
        print(event, json)?;
    }
    if !follow {
        return Ok(());
    }
    loop {
        let head = signalbox_event_store::head_position(pool).await?;
        let events = after(pool, &filter, seen, head).await?;
        let is_all = (events.len() as i64) < PIECE;
        for event in events {
            seen = event.position;
            print(event, json)?;
        }
        if is_all {
            // Events that do not match are searched once.
            seen = seen.max(head);
            sleep(POLL).await;
        }
    }
}

/// The first events after `seen` that match `filter`, up to the position `last`.
async fn after(
    pool: &PgPool,
    filter: &LogFilter,
    seen: i64,
    last: i64,
) -> Result<Vec<RecordedEvent>, SearchError> {
    if last <= seen {
        return Ok(Vec::new());
    }
    let new = LogFilter { first: Some(seen + 1), last: Some(last), ..filter.clone() };
    search(pool, &new, LogOrder::OldestFirst, PIECE).await
}

fn print(event: RecordedEvent, json: bool) -> anyhow::Result<()> {
    let event = LogEventOut::from(event);
    let mut out = std::io::stdout().lock();
    let printed = if json {
        writeln!(out, "{}", serde_json::to_string(&event)?)
    } else {
        let LogEventOut { position, time, r#type, stream_type, stream_id, version, actor, .. } = event;
        let time = time.format("%Y-%m-%dT%H:%M:%S%.3fZ");
        writeln!(out, "{position:>10}  {time}  {type:<26} {stream_type}/{stream_id}  v{version}  {actor}")
    };
    printed.context("standard output is closed")
}

/// Prints one event, or one stream as it was.
pub(super) async fn show(pool: &PgPool, args: &ShowArgs) -> anyhow::Result<()> {
    let shown = match (args.id, args.what.parse()) {
        (Some(id), _) => stream(pool, &args.what, id, args.at.as_deref()).await?,
        (None, Ok(position)) => event(pool, position).await?,
        (None, Err(_)) => bail!("{} is not a position; a stream is named by its kind and its key", args.what),
    };
    let text = if args.json { shown.to_string() } else { serde_json::to_string_pretty(&shown)? };
    writeln!(std::io::stdout(), "{text}").context("standard output is closed")
}

async fn event(pool: &PgPool, position: i64) -> anyhow::Result<serde_json::Value> {
    let at = LogFilter { first: Some(position), last: Some(position), ..LogFilter::default() };
    let found = search(pool, &at, LogOrder::OldestFirst, 1).await?.into_iter().next();
    let event = found.with_context(|| format!("there is no event at position {position}"))?;
    Ok(serde_json::to_value(LogEventOut::from(event))?)
}

async fn stream(pool: &PgPool, kind: &str, id: Uuid, at: Option<&str>) -> anyhow::Result<serde_json::Value> {
    let moment = at.map(str::parse).transpose()?.unwrap_or(Moment::Now);
    let state = stream_state(pool, kind, id, moment).await?;
    ensure!(state.is_some(), "there was no stream {kind} {id} then");
    Ok(serde_json::to_value(state)?)
}
