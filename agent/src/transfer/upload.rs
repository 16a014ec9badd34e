//! An upload: one file, or a whole tree with several files at once.

use super::{
    Job, Moved, TransferError,
    blocking::blocking,
    names::check_length,
    progress::FileProgress,
    reader::{Reading, Source},
    send::{send_directory, send_file},
    together::together,
    walk::{Found, walk},
};
use crate::{
    confine::{ConfineError, Place},
    digest::{Entry, Sha256Hex},
};
use std::{collections::HashMap, path::Path};

/// From this size on, a file of a tree whose first attempt failed is worth a question how much of it is there.
const WORTH_ASKING: u64 = 4 << 20;

/// Uploads the requested file or tree.
pub async fn run(job: &Job) -> Result<Moved, TransferError> {
    let (context, shown) = (job.context.clone(), job.request.source_path.clone());
    let source = blocking(move || Ok(context.roots.source(&shown)?)).await?;
    if job.request.is_tree() { tree(job, source).await } else { single(job, source).await }
}

async fn single(job: &Job, place: Place) -> Result<Moved, TransferError> {
    let name = file_name(job, &place)?;
    let source = Source { place, shown: job.request.source_path.clone() };
    let opened = source.clone();
    let total = blocking(move || Ok(Reading::open(&opened)?.total())).await?;
    job.progress.set_total(total);
    send_file(job, &name, &source, job.request.is_repeated()).await.map(Moved::file)
}

/// Name of the file: that of the requested path, which may be a link's, not its target's.
fn file_name(job: &Job, place: &Place) -> Result<String, TransferError> {
    let asked = Path::new(&job.request.source_path).file_name().map(ToOwned::to_owned);
    let name = asked.or_else(|| place.file_name()).and_then(|name| name.into_string().ok());
    name.ok_or(TransferError::BadRequest("the source path has no file name"))
}

async fn tree(job: &Job, root: Place) -> Result<Moved, TransferError> {
    let found = find(job, root).await?;
    found.iter().try_for_each(|found| check_length(&found.name))?;
    job.progress.set_total(found.iter().map(|found| found.size).sum());
    let staged = if job.request.is_repeated() { staged(job).await? } else { HashMap::new() };
    let group = job.group();
    let moves = found.into_iter().map(async |found| {
        // Found a moment ago: the next attempt finds the tree as it is then.
        move_entry(&group, &staged, found).await.map_err(|error| match error {
            TransferError::Path(ConfineError::Missing(name)) => TransferError::Removed(name),
            other => other,
        })
    });
    let entries = together(&group.interrupt, job.context.config.parallel_files, moves).await?;
    Ok(Moved::tree(&entries))
}

async fn find(job: &Job, root: Place) -> Result<Vec<Found>, TransferError> {
    let (context, shown) = (job.context.clone(), job.request.source_path.clone());
    let interrupt = job.interrupt.clone();
    blocking(move || {
        root.open_folder().map_err(|error| ConfineError::from_system(&shown, error))?;
        walk(&context.roots, &root, &shown, &interrupt)
    })
    .await
}

/// Entries staged by an earlier attempt.
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
    let Some(place) = found.place else {
        return if let Some(entry) = there {
            Ok(entry.clone())
        } else {
            send_directory(job, found.name).await
        };
    };
    let source = Source { place, shown: found.name.clone() };
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
    let (source, interrupt) = (source.clone(), job.interrupt.clone());
    let own = blocking(move || Reading::open(&source)?.digest(&interrupt)).await?;
    Ok(own == *digest)
}
