use std::{
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use sha2::{Digest, Sha256};
use signalbox_blob_store::{BlobError, BlobKey, BlobStore, Receive, Received, Start};
use signalbox_domain::kernel::Sha256Hex;
use signalbox_test_support::S3Server;
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use uuid::Uuid;

use crate::bucket::Bucket;

pub const MIB: usize = 1024 * 1024;

/// A store in a place of its own, and a key in it.
pub struct Fixture {
    pub store: BlobStore,
    pub key: BlobKey,
    pub place: Place,
}

pub enum Place {
    Folder(TempDir),
    Bucket(Bucket),
}

impl Fixture {
    pub fn in_a_folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path().to_owned()).unwrap();
        Self { store, key: odd_key(), place: Place::Folder(folder) }
    }

    pub async fn in_a_bucket() -> Self {
        let bucket = Bucket::new(S3Server::shared().await);
        Self { store: bucket.store(), key: odd_key(), place: Place::Bucket(bucket) }
    }

    /// The same place as another gateway opens it.
    pub fn other_gateway(&self) -> BlobStore {
        match &self.place {
            Place::Folder(folder) => BlobStore::open(folder.path().to_owned()).unwrap(),
            Place::Bucket(bucket) => bucket.store(),
        }
    }

    /// Stores `content` from its first byte.
    pub async fn put(&self, content: &[u8]) -> Result<Received, BlobError> {
        self.receive(anew(), chunks(content)).await
    }

    pub async fn receive(
        &self,
        request: Receive,
        body: impl Stream<Item = io::Result<Bytes>>,
    ) -> Result<Received, BlobError> {
        self.store.receive(&self.key, request, body, |_| {}).await
    }

    /// Stores the first bytes of a file as an upload leaves them whose client went away.
    pub async fn cut_after(&self, content: &[u8]) {
        let error = self.receive(anew(), cut(content)).await.unwrap_err();
        let expected = content.len() as u64;
        assert!(
            matches!(error, BlobError::Interrupted { received, .. } if received == expected),
            "{error:?}"
        );
    }

    pub async fn content(&self) -> Vec<u8> {
        read_all(&self.store, &self.key).await.unwrap()
    }

    /// How many files and parts are kept. Fails where there is more than belongs to them.
    pub async fn kept(&self) -> usize {
        match &self.place {
            Place::Folder(folder) => files_in(folder.path()).len(),
            Place::Bucket(bucket) => bucket.kept().await,
        }
    }

    /// The transfers that have files. A bucket's server may also name those that had some.
    pub async fn transfers(&self) -> Vec<Uuid> {
        let mut named = self.store.list_transfers().await.unwrap();
        named.sort();
        match &self.place {
            Place::Folder(_) => named,
            Place::Bucket(bucket) => {
                let there = bucket.transfers().await;
                assert!(there.is_subset(&named.into_iter().collect()));
                there.into_iter().collect()
            }
        }
    }

    /// Leaves ten bytes of the file, as a faulty disk or a manual mistake would.
    pub async fn cut_short(&self) {
        match &self.place {
            Place::Folder(folder) => {
                let file = std::fs::File::options().write(true).open(&files_in(folder.path())[0]).unwrap();
                file.set_len(10).unwrap();
            }
            Place::Bucket(bucket) => {
                let segment = bucket.segments().await.remove(0);
                bucket.client.put(&segment, vec![7; 10].into()).await.unwrap();
            }
        }
    }
}

/// Names of all files under `root`, folders left out.
pub fn files_in(root: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

fn odd_key() -> BlobKey {
    key(1, "../dir with spaces/Übung.bin")
}

pub fn key(transfer: u128, name: &str) -> BlobKey {
    BlobKey::new(Uuid::from_u128(transfer), name)
}

pub fn anew() -> Receive {
    Receive { start: Start::Anew, limit: u64::MAX, expected_sha256: None, total: None }
}

pub fn at(offset: usize, total: usize) -> Receive {
    Receive { start: Start::At { offset: offset as u64, total: total as u64 }, ..anew() }
}

pub fn complete(content: &[u8]) -> Received {
    Received::Complete { size: content.len() as u64, sha256: sha256(content) }
}

pub fn sha256(content: &[u8]) -> Sha256Hex {
    Sha256Hex::from_bytes(&Sha256::digest(content))
}

/// Bytes without a short period, so that a misplaced block shows.
pub fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A body in chunks of a size that fits no buffer.
pub fn chunks(content: &[u8]) -> impl Stream<Item = io::Result<Bytes>> + use<> {
    let chunks: Vec<_> = content.chunks(77_777).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    stream::iter(chunks)
}

/// The same body, broken off at its end.
pub fn cut(content: &[u8]) -> impl Stream<Item = io::Result<Bytes>> + use<> {
    chunks(content).chain(stream::iter([Err(io::ErrorKind::ConnectionReset.into())]))
}

pub async fn read_all(store: &BlobStore, key: &BlobKey) -> Result<Vec<u8>, BlobError> {
    let (size, body) = store.read(key, None).await?;
    let content = collect(body).await;
    assert_eq!(content.len() as u64, size);
    Ok(content)
}

/// The bytes of `body`, or the error that it ends with.
pub async fn try_collect(body: impl Stream<Item = io::Result<Bytes>>) -> io::Result<Vec<u8>> {
    body.map_ok(|chunk| chunk.to_vec()).try_concat().await
}

pub async fn collect(body: impl Stream<Item = io::Result<Bytes>>) -> Vec<u8> {
    try_collect(body).await.unwrap()
}

/// An upload in progress, fed by the test.
pub struct Upload {
    feed: mpsc::Sender<io::Result<Bytes>>,
    came: watch::Receiver<u64>,
    sent: u64,
    task: JoinHandle<Result<Received, BlobError>>,
}

impl Upload {
    pub fn start(store: &BlobStore, key: &BlobKey, request: Receive) -> Self {
        let (feed, mut body) = mpsc::channel(1);
        let (progress, came) = watch::channel(0);
        let sent = if let Start::At { offset, .. } = request.start { offset } else { 0 };
        let (store, key) = (store.clone(), key.clone());
        let task = tokio::spawn(async move {
            let body = stream::poll_fn(move |context| body.poll_recv(context));
            store
                .receive(&key, request, body, |bytes| {
                    progress.send_replace(bytes);
                })
                .await
        });
        Self { feed, came, sent, task }
    }

    /// Sends `content` and waits until the store has taken it.
    pub async fn send(&mut self, content: &[u8]) {
        self.sent += content.len() as u64;
        self.feed.send(Ok(Bytes::copy_from_slice(content))).await.unwrap();
        let sent = self.sent;
        self.came.wait_for(|came| *came >= sent).await.unwrap();
    }

    /// Sends `content` to an upload that may have ended.
    pub async fn offer(&mut self, content: &[u8]) {
        let _ = self.feed.send(Ok(Bytes::copy_from_slice(content))).await;
    }

    /// Ends the body and waits for the outcome.
    pub async fn finish(self) -> Result<Received, BlobError> {
        drop(self.feed);
        self.task.await.unwrap()
    }

    /// Drops the upload where it stands, as a gateway that is stopped does.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}
