use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use signalbox_blob_store::{BlobError, BlobKey, BlobStore, Progress, Receive, Received, Start};

use crate::support::{Fixture, MIB, Place, anew, chunks, complete, cut, files_in, key, pattern, sha256};

in_both_places! {
    a_downloaded_file_equals_the_uploaded_one
    an_empty_file_is_a_file
    empty_chunks_and_many_tiny_ones_add_up
    a_file_of_exactly_the_limit_is_taken
    one_byte_more_than_the_limit_leaves_nothing
    an_announced_size_over_the_limit_is_refused_before_the_body
    the_announced_digest_is_checked
    a_wrong_digest_leaves_nothing_but_an_older_file
    more_bytes_than_announced_leave_nothing
    a_body_that_fails_or_ends_early_keeps_what_came
    a_second_upload_replaces_the_first
    progress_counts_the_bytes_of_the_file
    an_upload_holds_a_few_mebibytes_at_most
}

async fn a_downloaded_file_equals_the_uploaded_one(fixture: Fixture) {
    let content = pattern(5 * MIB + 13);
    assert_eq!(fixture.put(&content).await.unwrap(), complete(&content));
    assert!(fixture.content().await == content);
    let size = content.len() as u64;
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Complete { size });
    assert_eq!(fixture.store.digest(&fixture.key).await.unwrap(), sha256(&content));
    assert_eq!(fixture.kept().await, 1);
}

async fn an_empty_file_is_a_file(fixture: Fixture) {
    let request = Receive { total: Some(0), limit: 0, ..anew() };
    assert_eq!(fixture.receive(request, chunks(b"")).await.unwrap(), complete(b""));
    assert_eq!(fixture.content().await, b"");
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Complete { size: 0 });
}

async fn empty_chunks_and_many_tiny_ones_add_up(fixture: Fixture) {
    let content = pattern(5_000);
    let tiny: Vec<_> =
        content.iter().flat_map(|byte| [Ok(Bytes::new()), Ok(Bytes::copy_from_slice(&[*byte]))]).collect();
    assert_eq!(fixture.receive(anew(), stream::iter(tiny)).await.unwrap(), complete(&content));
    assert!(fixture.content().await == content);
}

async fn a_file_of_exactly_the_limit_is_taken(fixture: Fixture) {
    let content = pattern(3 * MIB);
    let request = Receive { limit: content.len() as u64, ..anew() };
    assert_eq!(fixture.receive(request, chunks(&content)).await.unwrap(), complete(&content));
}

async fn one_byte_more_than_the_limit_leaves_nothing(fixture: Fixture) {
    let content = pattern(3 * MIB);
    let request = Receive { limit: content.len() as u64 - 1, ..anew() };
    let error = fixture.receive(request, chunks(&content)).await.unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { limit } if limit == content.len() as u64 - 1), "{error:?}");
    assert_eq!(fixture.kept().await, 0);
}

async fn an_announced_size_over_the_limit_is_refused_before_the_body(fixture: Fixture) {
    let request = Receive { limit: 9, total: Some(10), ..anew() };
    let unread =
        stream::poll_fn(|_| -> std::task::Poll<Option<io::Result<Bytes>>> { panic!("the body was read") });
    let error = fixture.receive(request, unread).await.unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { limit: 9 }), "{error:?}");
    assert_eq!(fixture.kept().await, 0);
}

async fn the_announced_digest_is_checked(fixture: Fixture) {
    let content = pattern(2 * MIB);
    let right = Receive { expected_sha256: Some(sha256(&content)), ..anew() };
    assert_eq!(fixture.receive(right, chunks(&content)).await.unwrap(), complete(&content));
}

async fn a_wrong_digest_leaves_nothing_but_an_older_file(fixture: Fixture) {
    let wrong = Receive { expected_sha256: Some(sha256(b"other")), ..anew() };
    let error = fixture.receive(wrong.clone(), chunks(b"bytes")).await.unwrap_err();
    let (want, got) = (sha256(b"other"), sha256(b"bytes"));
    assert!(
        matches!(&error, BlobError::ChecksumMismatch { expected, actual } if *expected == want && *actual == got),
        "{error:?}"
    );
    assert_eq!(fixture.kept().await, 0);

    fixture.put(b"older").await.unwrap();
    fixture.receive(wrong, chunks(b"bytes")).await.unwrap_err();
    assert_eq!(fixture.content().await, b"older");
    assert_eq!(fixture.kept().await, 1);
}

async fn more_bytes_than_announced_leave_nothing(fixture: Fixture) {
    let request = Receive { total: Some(4), ..anew() };
    let error = fixture.receive(request, chunks(b"bytes")).await.unwrap_err();
    assert!(matches!(error, BlobError::Overrun { total: 4 }), "{error:?}");
    assert_eq!(fixture.kept().await, 0);
}

async fn a_body_that_fails_or_ends_early_keeps_what_came(fixture: Fixture) {
    let content = pattern(2 * MIB);
    let error = fixture.receive(anew(), cut(&content)).await.unwrap_err();
    assert!(matches!(error, BlobError::Interrupted { source: Some(_), .. }), "{error:?}");
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Part(content.len() as u64));

    let announced = Receive { total: Some(content.len() as u64 + 1), ..anew() };
    let error = fixture.receive(announced, chunks(&content)).await.unwrap_err();
    assert!(matches!(error, BlobError::Interrupted { source: None, .. }), "{error:?}");
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Part(content.len() as u64));
    assert!(matches!(fixture.store.read(&fixture.key, None).await.err(), Some(BlobError::NotFound)));
}

async fn a_second_upload_replaces_the_first(fixture: Fixture) {
    fixture.put(&pattern(MIB)).await.unwrap();
    fixture.put(b"short").await.unwrap();
    assert_eq!(fixture.content().await, b"short");
    assert_eq!(fixture.kept().await, 1);
}

async fn progress_counts_the_bytes_of_the_file(fixture: Fixture) {
    let content = pattern(MIB);
    let seen = std::sync::Mutex::new(Vec::new());
    fixture
        .store
        .receive(&fixture.key, anew(), chunks(&content), |bytes| seen.lock().unwrap().push(bytes))
        .await
        .unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted());
    assert_eq!(seen.last(), Some(&(MIB as u64)));
}

#[tokio::test]
async fn a_disk_that_refuses_is_named() {
    let fixture = Fixture::in_a_folder();
    fixture.put(b"bytes").await.unwrap();
    let Place::Folder(root) = &fixture.place else { unreachable!() };
    let folder = files_in(root.path())[0].parent().unwrap().to_owned();
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, b"in the way").unwrap();
    let error = fixture.put(b"bytes").await.unwrap_err();
    assert!(matches!(error, BlobError::Io { .. }), "{error:?}");
}

/// A store on a small disk, and a file that does not fit on it.
fn on_a_small_disk() -> (BlobStore, BlobKey, Vec<u8>) {
    let disk = std::env::var_os("SIGNALBOX_SMALL_DISK").unwrap();
    (BlobStore::open(disk.into()).unwrap(), key(1, "large"), pattern(20 * MIB))
}

#[tokio::test]
#[ignore = "needs SIGNALBOX_SMALL_DISK, an empty folder on a file system of at most 16 MiB"]
async fn a_full_disk_is_reported_and_leaves_nothing_behind() {
    let (store, key, content) = on_a_small_disk();
    let error = store.receive(&key, anew(), chunks(&content), |_| {}).await.unwrap_err();
    assert!(matches!(error, BlobError::DiskFull { .. }), "{error:?}");
    assert_eq!(store.received(&key).await.unwrap(), Progress::Nothing);
    store.receive(&key, anew(), chunks(&content[..MIB]), |_| {}).await.unwrap();
    store.delete_transfer(key.transfer()).await.unwrap();
}

#[tokio::test]
#[ignore = "needs SIGNALBOX_SMALL_DISK, an empty folder on a file system of at most 16 MiB"]
async fn a_full_disk_keeps_what_was_there_before_the_upload() {
    let (store, key, content) = on_a_small_disk();
    let total = content.len() as u64;
    let piece = |offset: usize, length: usize| Receive {
        start: Start::At { offset: offset as u64, total },
        total: Some(length as u64),
        ..anew()
    };
    store.receive(&key, piece(0, MIB), chunks(&content[..MIB]), |_| {}).await.unwrap();
    let rest = &content[MIB..];
    let error = store.receive(&key, piece(MIB, rest.len()), chunks(rest), |_| {}).await.unwrap_err();
    assert!(matches!(error, BlobError::DiskFull { .. }), "{error:?}");
    assert_eq!(store.received(&key).await.unwrap(), Progress::Part(MIB as u64));
    let next = store.receive(&key, piece(MIB, MIB), chunks(&content[MIB..2 * MIB]), |_| {}).await.unwrap();
    assert_eq!(next, Received::Partial { size: 2 * MIB as u64 });
    store.delete_transfer(key.transfer()).await.unwrap();
}

/// Holds its bytes in a running total for as long as anyone holds the chunk.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::SeqCst);
    }
}

async fn an_upload_holds_a_few_mebibytes_at_most(fixture: Fixture) {
    let (held, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let body = stream::iter(0..2_000).map({
        let (held, peak) = (Arc::clone(&held), Arc::clone(&peak));
        move |_| {
            let now = held.fetch_add(64 * 1024, Ordering::SeqCst) + 64 * 1024;
            peak.fetch_max(now, Ordering::SeqCst);
            Ok::<_, io::Error>(Bytes::from_owner(Counted(vec![7; 64 * 1024], Arc::clone(&held))))
        }
    });
    fixture.receive(anew(), body).await.unwrap();
    assert!(peak.load(Ordering::SeqCst) <= 4 * MIB, "{peak:?}");
    assert_eq!(held.load(Ordering::SeqCst), 0);
}
