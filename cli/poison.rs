//! `signalbox projections poison`: the streams that read models have set aside.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use signalbox_domain::catalog::Context;
use signalbox_event_store::read_stream_from;
use signalbox_projections::{
    Projection, ProjectionVisitor, Retried, SetAside, StepError, for_projection, retry, retry_soon,
    set_aside_streams,
};
use sqlx::PgPool;

/// Exit status when a stream still waits after a retry.
const STILL_WAITING: u8 = 3;
/// Waiting events that `show` lists.
const MAX_SHOWN: i64 = 100;

/// Commands for streams that are set aside.
#[derive(Debug, Subcommand)]
pub(crate) enum PoisonCommand {
    /// List the streams that read models have set aside, because an event of them cannot be applied.
    List(Which),
    /// Apply the events that wait, in order.
    ///
    /// The exit status is 0 when no event waits any more, and 3 when one does.
    Retry(Which),
    /// Show one of these streams, and which of its events wait.
    Show {
        /// Position of the first event that waits, as `list` shows it.
        position: i64,
        /// One line of JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Which streams are meant.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The read model; all, if absent.
    #[arg(value_parser = PossibleValuesParser::new(Context::WORDS))]
    name: Option<String>,
    /// Position of the first event that waits; all, if absent.
    #[arg(long)]
    position: Option<i64>,
    /// One line of JSON for each.
    #[arg(long)]
    json: bool,
}

/// Runs a command on streams that are set aside.
pub(crate) async fn run(pool: &PgPool, command: PoisonCommand) -> anyhow::Result<ExitCode> {
    match command {
        PoisonCommand::List(which) => {
            for stream in find(pool, &which).await? {
                print(which.json, &summary(&stream), &facts(&stream));
            }
            Ok(ExitCode::SUCCESS)
        }
        PoisonCommand::Retry(which) => {
            let mut is_waiting = false;
            for stream in find(pool, &which).await? {
                is_waiting |= retry_one(pool, &stream, which.json).await?;
            }
            Ok(if is_waiting { ExitCode::from(STILL_WAITING) } else { ExitCode::SUCCESS })
        }
        PoisonCommand::Show { position, json } => {
            let which = Which { name: None, position: Some(position), json };
            let streams = find(pool, &which).await?;
            if streams.is_empty() {
                bail!(
                    "no stream waits from event {position} on; `signalbox projections poison list` shows which do"
                );
            }
            for stream in &streams {
                show(pool, stream, json).await?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn find(pool: &PgPool, which: &Which) -> Result<Vec<SetAside>, sqlx::Error> {
    let mut streams = set_aside_streams(pool, which.name.as_deref()).await?;
    streams.retain(|stream| which.position.is_none_or(|position| position == stream.position));
    Ok(streams)
}

/// Retries `stream`; returns whether it still waits.
async fn retry_one(pool: &PgPool, stream: &SetAside, json: bool) -> anyhow::Result<bool> {
    if stream.projection.starts_with("worker.") {
        retry_soon(pool, stream).await?;
        let text = format!("{}: event {} is retried by the worker", stream.projection, stream.position);
        print(json, &text, &facts(stream));
        return Ok(true);
    }
    if stream.alone {
        let text = format!(
            "{}: event {} was set aside alone by an earlier version; `signalbox projections rebuild {}` applies it",
            stream.projection, stream.position, stream.projection
        );
        print(json, &text, &facts(stream));
        return Ok(true);
    }
    let (applied, error) = match retry_in(pool, stream).await? {
        Retried::Applied(applied) => (applied, None),
        Retried::Waits(applied, poison) => (applied, Some(poison)),
    };
    let text = match &error {
        None => format!("{}: {applied} events were applied", stream.projection),
        Some(poison) => format!(
            "{}: {applied} events were applied; event {} cannot be: {}",
            stream.projection, poison.key.position, poison.error
        ),
    };
    let mut facts = facts(stream);
    facts["applied"] = json!(applied);
    facts["error"] = json!(error.as_ref().map(|poison| &poison.error));
    print(json, &text, &facts);
    Ok(error.is_some())
}

async fn retry_in(pool: &PgPool, stream: &SetAside) -> anyhow::Result<Retried> {
    let Some(context) = Context::of_word(&stream.projection) else {
        bail!("there is no read model {}: a newer version has set the stream aside", stream.projection);
    };
    Ok(for_projection(context, Retry { pool, stream }).await?)
}

/// A stream that is about to be retried.
struct Retry<'a> {
    pool: &'a PgPool,
    stream: &'a SetAside,
}

impl<'a> ProjectionVisitor for Retry<'a> {
    type Output = LocalBoxFuture<'a, Result<Retried, StepError>>;

    fn visit<P: Projection>(self) -> Self::Output {
        Box::pin(retry::<P>(self.pool, self.stream))
    }
}

/// Payloads are left out: they may hold data for their owners only.
async fn show(pool: &PgPool, stream: &SetAside, json: bool) -> anyhow::Result<()> {
    let mut connection = pool.acquire().await?;
    let key = (stream.aggregate_type.as_str(), stream.aggregate_id.as_str());
    let slice = read_stream_from(&mut connection, key, stream.sequence, i64::MAX, MAX_SHOWN).await?;
    let keys = slice.keys();
    if json {
        let mut facts = facts(stream);
        let event = |key: &signalbox_event_store::EventKey| json!({"position": key.position, "sequence": key.sequence, "type": key.event_type});
        facts["events"] = keys.iter().map(event).collect();
        println!("{facts}");
        return Ok(());
    }
    println!("{}", summary(stream));
    println!(
        "since {}, {} retries failed, the next is due {}",
        stream.seen_at, stream.attempts, stream.retry_at
    );
    for key in keys {
        println!("{:>12}  {:>6}  {}", key.position, key.sequence, key.event_type);
    }
    Ok(())
}

fn print(json: bool, text: &str, facts: &Value) {
    if json {
        println!("{facts}");
    } else {
        println!("{text}");
    }
}

fn summary(stream: &SetAside) -> String {
    let SetAside { projection, position, aggregate_type, aggregate_id, event_type, waiting, error, .. } =
        stream;
    format!(
        "{projection:12} {position:>12}  {aggregate_type} {aggregate_id}  {event_type}  {waiting} waiting: {error}"
    )
}

fn facts(stream: &SetAside) -> Value {
    json!({
        "projection": stream.projection,
        "position": stream.position,
        "stream_type": stream.aggregate_type,
        "stream_id": stream.aggregate_id,
        "sequence": stream.sequence,
        "event_type": stream.event_type,
        "waiting": stream.waiting,
        "alone": stream.alone,
        "since": stream.seen_at,
        "attempts": stream.attempts,
        "retry_at": stream.retry_at,
        "error": stream.error,
    })
}
