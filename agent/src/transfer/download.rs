//! A download: one file, or a whole tree with several files at once.

use super::{
    Job, Moved, TransferError,
    blocking::blocking,
    fetch::{Target, fetch_file},
    names::check_length,
    progress::FileProgress,
    reader::{Reading, Source},
    together::together,
};
use crate::{
    confine::{ConfineError, Destination, Folder, Place, check_entry_name, check_file_name},
    digest::{Entry, Sha256Hex, tree_digest},
    gateway::Manifest,
};
use std::{collections::HashSet, sync::Arc};

/// Downloads the requested file or tree.
pub async fn run(job: &Job) -> Result<Moved, TransferError> {
    if job.request.is_tree() { tree(job).await } else { single(job).await }
}

async fn single(job: &Job) -> Result<Moved, TransferError> {
    let destination = blocking({
        let (context, request) = (job.context.clone(), job.request.clone());
        move || {
            let path = &request.destination_path;
            let destination = context.roots.destination(path)?;
            if !path.ends_with('/') && !destination.is_directory() {
                return Ok(destination);
            }
            let name = incoming_name(&request.filename, &request.source_path)?;
            Ok(context.roots.destination(&format!("{}/{name}", path.trim_end_matches('/')))?)
        }
    })
    .await?;
    let (folder, name) = prepare(destination).await?;
    job.progress.set_total(job.request.size.unwrap_or_default());
    let target =
        Target { folder, name, entry: None, size: job.request.size, sha256: job.request.sha256.clone() };
    fetch_file(job, &target).await.map(Moved::file)
}

/// The name of a file in its directory: the gateway's, or that of the source.
fn incoming_name(filename: &Option<String>, source_path: &str) -> Result<String, TransferError> {
    let name = match filename {
        Some(name) => name.as_str(),
        None => source_path.rsplit('/').next().unwrap_or_default(),
    };
    check_file_name(name)?;
    Ok(name.to_owned())
}

/// Makes the folder of a file; answers with it and the file's name.
async fn prepare(destination: Destination) -> Result<(Arc<Folder>, String), TransferError> {
    blocking(move || {
        let (folder, name) =
            destination.split().ok_or(TransferError::BadRequest("the destination has no file name"))?;
        let folder = folder.make_folders(&name).map_err(full_disk)?;
        folder.check_final(&name)?;
        Ok((Arc::new(folder), name))
    })
    .await
}

fn full_disk(error: ConfineError) -> TransferError {
    match error {
        ConfineError::Io(shown, error) => TransferError::write(&shown, error),
        other => other.into(),
    }
}

async fn tree(job: &Job) -> Result<Moved, TransferError> {
    let manifest = job.interrupt.guard(job.context.gateway.manifest(job.request.id)).await??;
    check_manifest(job, &manifest)?;
    let base = prepare_base(job).await?;
    job.progress.set_total(manifest.files.iter().map(|entry| entry.size).sum());
    let group = job.group();
    let moves = manifest.files.into_iter().map(|entry| take_entry(&group, &base, entry));
    let entries = together(&group.interrupt, job.context.config.parallel_files, moves).await?;
    Ok(Moved::tree(&entries))
}

async fn prepare_base(job: &Job) -> Result<Place, TransferError> {
    let (context, path) = (job.context.clone(), job.request.destination_path.clone());
    blocking(move || {
        let folder = context.roots.destination(&path)?.make_folders(&path).map_err(full_disk)?;
        Ok(folder.place().clone())
    })
    .await
}

/// Refuses bad names before the first byte is written, and a list that is not the one the gateway announced.
fn check_manifest(job: &Job, manifest: &Manifest) -> Result<(), TransferError> {
    let mut names = HashSet::new();
    for entry in &manifest.files {
        check_entry_name(&entry.name)?;
        check_length(&entry.name)?;
        if !names.insert(entry.name.trim_end_matches('/')) {
            return Err(TransferError::BadManifest("a name stands in it twice"));
        }
    }
    let digest = tree_digest(&manifest.files);
    let announced = [&manifest.sha256, &job.request.sha256];
    if announced.into_iter().flatten().any(|announced| *announced != digest) {
        return Err(TransferError::BadManifest("its digest is not the announced one"));
    }
    if job.request.files.is_some_and(|files| files != manifest.files.len() as u64) {
        return Err(TransferError::BadManifest("the number of entries is not the announced one"));
    }
    Ok(())
}

async fn take_entry(job: &Job, base: &Place, entry: Entry) -> Result<Entry, TransferError> {
    job.interrupt.check()?;
    let (context, owned, name) = (job.context.clone(), base.clone(), entry.name.clone());
    if entry.name.ends_with('/') {
        return blocking(move || {
            context.roots.entry(&owned, &name)?.make_folders(&name).map_err(full_disk)?;
            Ok(Entry { size: 0, sha256: Sha256Hex::of(b""), ..entry })
        })
        .await;
    }
    let destination = blocking(move || Ok(context.roots.entry(&owned, &name)?)).await?;
    if job.request.is_repeated() && is_there(job, &destination, &entry).await? {
        FileProgress::new(&job.progress).set(entry.size);
        return Ok(entry);
    }
    let (folder, name) = prepare(destination).await?;
    let (size, sha256) = (Some(entry.size), Some(entry.sha256));
    fetch_file(job, &Target { folder, name, entry: Some(entry.name), size, sha256 }).await
}

/// Whether an earlier attempt brought the file to its final place already.
async fn is_there(job: &Job, destination: &Destination, entry: &Entry) -> Result<bool, TransferError> {
    let Some(place) = destination.existing().cloned() else { return Ok(false) };
    let (entry, interrupt) = (entry.clone(), job.interrupt.clone());
    blocking(move || {
        if place.file_size() != Some(entry.size) {
            return Ok(false);
        }
        let source = Source { place, shown: entry.name };
        Ok(Reading::open(&source)?.digest(&interrupt)? == entry.sha256)
    })
    .await
}
