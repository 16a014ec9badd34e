use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Args;
use signalbox_event_store::{SignedHead, Verification, chain_head, verify_chain};
use sqlx::PgPool;

use crate::progress;

/// Exit status when the log is not as it was.
const TAMPERED: u8 = 3;

/// How the end of the chain is printed.
#[derive(Debug, Args)]
pub(crate) struct HeadArgs {
    /// Sign it with this Ed25519 private key (PEM, as `openssl genpkey -algorithm ed25519` makes it).
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
}

/// The published head to compare with.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A head that was published, as `signalbox log head` printed it.
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    /// The Ed25519 public key that the head must be signed with (PEM).
    #[arg(long, value_name = "FILE", requires = "head")]
    public_key: Option<PathBuf>,
    /// JSON for programs.
    #[arg(long)]
    json: bool,
}

/// Prints the end of the chain as JSON.
pub(super) async fn head(pool: &PgPool, args: &HeadArgs) -> anyhow::Result<()> {
    let head = chain_head(pool).await?;
    let head = head.context("nothing is chained yet: a running service chains the log within seconds")?;
    let head = match &args.sign {
        Some(path) => head.sign(&read(path)?).with_context(|| format!("{} cannot sign", path.display()))?,
        None => head.unsigned(),
    };
    println!("{}", serde_json::to_string(&head)?);
    Ok(())
}

/// Compares the log with its chain.
pub(super) async fn verify(pool: &PgPool, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let published = args.head.as_deref().map(published).transpose()?;
    if let (Some(head), Some(path)) = (&published, &args.public_key) {
        head.check(&read(path)?)
            .with_context(|| format!("the head's signature does not verify with {}", path.display()))?;
    }
    let bar = progress::bar("", "events");
    let moved = |done: i64, all: i64| progress::show(&bar, done as u64, all as u64);
    let found = verify_chain(pool, published.as_ref(), moved).await?;
    bar.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string(&found)?);
    } else {
        print(&found, published.as_ref());
    }
    Ok(if found.fault.is_some() { ExitCode::from(TAMPERED) } else { ExitCode::SUCCESS })
}

fn print(found: &Verification, published: Option<&SignedHead>) {
    let Verification { head, verified, unchained, fault } = found;
    if let Some(fault) = fault {
        println!("The log is not as it was: {fault}.");
        println!("The {verified} events before are as they were.");
        return;
    }
    println!("The log of events is as it was: {verified} of {head} events fit the hash chain.");
    println!("Datapoints have a log of their own, which the chain does not cover.");
    if let Some(published) = published {
        println!("It holds the published head at event {}.", published.position);
    }
    if *unchained > 0 {
        println!(
            "The last {unchained} events are not chained yet; a running service does so within seconds."
        );
    }
}

fn published(path: &Path) -> anyhow::Result<SignedHead> {
    let text = read(path)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not a head of `signalbox log head`", path.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}
