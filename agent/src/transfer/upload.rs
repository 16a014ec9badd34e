//! An upload: one file, or a whole tree with several files at once.

use super::{
    Job, Moved, TransferError,
    blocking::blocking,
    progress::FileProgress,
    reader::{Reading, Source},
    send::{send_directory, send_file},
    together::together,
    walk::{Found, walk},
};
use crate::{
    confine::ConfineError,
    digest::{Entry, Sha256Hex},
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// From this size on, a file of a tree whose first attempt failed is worth a question how much of it is there.
const WORTH_ASKING: u64 = 4 << 20;

/// Uploads what the request names.
pub async fn run(job: &Job) -> Result<Moved, TransferError> {
    let (context, shown) = (job.context.clone(), job.request.source_path.clone());
    let source = blocking(move || Ok(context.roots.source(&shown)?)).await?;
    if job.request.is_tree() { tree(job, source).await } else { single(job, source).await }
}

async fn single(job: &Job, path: PathBuf) -> Result<Moved, TransferError> {
    let name = file_name(job, &path)?;
    let source = Source { path, shown: job.request.source_path.clone() };
    let (context, opened) = (job.context.clone(), source.clone());
    let total = blocking(move || Ok(Reading::open(&context.roots, &opened)?.total())).await?;
    job.progress.set_total(total);
    send_file(job, &name, &source, job.request.is_repeated()).await.map(Moved::file)
}

/// The name a file goes by: that of the request's path, which may be a link's, rather than of what it leads to.
fn file_name(job: &Job, path: &Path) -> Result<String, TransferError> {
    let asked = Path::new(&job.request.source_path).file_name();
    let name = asked.or(path.file_name()).and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or(TransferError::BadRequest("the source path has no file name"))
}

async fn tree(job: &Job, root: PathBuf) -> Result<Moved, TransferError> {
    let found = find(job, root).await?;
    job.progress.set_total(found.iter().map(|found| found.size).sum());
    let staged = if job.request.is_repeated() { staged(job).await? } else { HashMap::new() };
    let group = job.group();
    let moves = found.into_iter().map(|found| move_entry(&group, &staged, found));
    let entries = together(&group.interrupt, job.context.config.parallel_files, moves).await?;
    Ok(Moved::tree(&entries))
}

async fn find(job: &Job, root: PathBuf) -> Result<Vec<Found>, TransferError> {
    let (context, shown) = (job.context.clone(), job.request.source_path.clone());
    let interrupt = job.interrupt.clone();
    blocking(move || {
        if !root.is_dir() {
            return Err(ConfineError::NotDirectory(shown).into());
        }
        walk(&context.roots, &root, &shown, &interrupt)
    })
    .await
}

/// What an earlier attempt brought there.
async fn staged(job: &Job) -> Result<HashMap<String, Entry>, TransferError> {
    let manifest = job.interrupt.guard(job.context.gateway.manifest(job.request.id)).await??;
    Ok(manifest.files.into_iter().map(|entry| (entry.name.clone(), entry)).collect())
}

async fn move_entry(
    job: &Job,
    staged: &HashMap<String, Entry>,
    found: Found,
) -> Result<Entry, TransferError> {
    job.interrupt.check()?;
    let there = staged.get(&found.name);
    let Some(path) = found.path else {
        return if let Some(entry) = there {
            Ok(entry.clone())
        } else {
            send_directory(job, found.name).await
        };
    };
    let source = Source { path, shown: found.name.clone() };
    if let Some(entry) = there.filter(|entry| entry.size == found.size)
        && is_same(job, &source, &entry.sha256).await?
    {
        FileProgress::new(&job.progress).set(entry.size);
        return Ok(entry.clone());
    }
    let ask = job.request.is_repeated() && there.is_none() && found.size >= WORTH_ASKING;
    send_file(job, &found.name, &source, ask).await
}

async fn is_same(job: &Job, source: &Source, digest: &Sha256Hex) -> Result<bool, TransferError> {
    let (context, source, interrupt) = (job.context.clone(), source.clone(), job.interrupt.clone());
    let own = blocking(move || Reading::open(&context.roots, &source)?.digest(&interrupt)).await?;
    Ok(own == *digest)
}
