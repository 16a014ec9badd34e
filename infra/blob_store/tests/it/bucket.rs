//! Behaviour that only a bucket has.

use std::collections::{BTreeSet, HashSet};

use futures::{TryStreamExt, future::join_all};
use object_store::{ObjectStore, ObjectStoreExt, aws::AmazonS3, path::Path};
use serde_json::Value;
use signalbox_blob_store::{BlobError, BlobStore, CheckError, Progress, Received};
use signalbox_config::{Config, Secret, Storage};
use signalbox_test_support::{S3Server, eventually, seconds};
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use uuid::Uuid;

use crate::support::{
    Fixture, MIB, Place, Upload, anew, at, chunks, complete, cut, key, pattern, read_all, sha256,
};

/// A prefix of its own in the bucket of an S3 server.
pub struct Bucket {
    pub client: AmazonS3,
    pub storage: Storage,
    prefix: Path,
    _folder: TempDir,
}

impl Bucket {
    pub fn new(server: &S3Server) -> Self {
        let (folder, prefix) = (tempfile::tempdir().unwrap(), S3Server::unique_prefix());
        let mut storage = Config::load(None, &Default::default()).unwrap().storage;
        server.configure(&mut storage, &prefix);
        storage.folder = folder.path().to_owned();
        storage.segment_mb = 1;
        let prefix = Path::from(prefix).join("blobs");
        Self { client: server.client(), storage, prefix, _folder: folder }
    }

    pub fn store(&self) -> BlobStore {
        BlobStore::configured(&self.storage, "blobs").unwrap()
    }

    async fn objects(&self) -> Vec<Path> {
        let listed = self.client.list(Some(&self.prefix)).map_ok(|object| object.location);
        listed.try_collect().await.unwrap()
    }

    pub async fn segments(&self) -> Vec<Path> {
        let is_segment = |path: &Path| path.filename().unwrap().contains('.');
        let mut segments: Vec<_> = self.objects().await.into_iter().filter(is_segment).collect();
        segments.sort();
        segments
    }

    pub async fn transfers(&self) -> BTreeSet<Uuid> {
        let objects = self.objects().await;
        let folders = objects.iter().filter_map(|path| path.prefix_match(&self.prefix)?.next());
        folders.filter_map(|folder| Uuid::try_parse(folder.as_ref()).ok()).collect()
    }

    async fn marks(&self) -> usize {
        self.objects().await.iter().filter(|path| path.as_ref().contains("/.deleted/")).count()
    }

    async fn json(&self, path: &Path) -> Value {
        serde_json::from_slice(&self.client.get(path).await.unwrap().bytes().await.unwrap()).unwrap()
    }

    /// How many files and parts the records name. Every segment must be named by one.
    pub async fn kept(&self) -> usize {
        let (mut kept, mut named) = (0, HashSet::new());
        for path in self.objects().await.into_iter().filter(|path| path.filename() == Some("record")) {
            let record = self.json(&path).await;
            let runs = [&record["whole"], &record["part"]].into_iter().filter(|there| !there.is_null());
            for run in runs.inspect(|_| kept += 1).flat_map(|there| there["runs"].as_array().unwrap()) {
                let number = |name: &str| run[name].as_u64().unwrap();
                let writer = run["writer"].as_str().unwrap().replace('-', "");
                for segment in number("first")..number("first") + number("count") {
                    let file = path.as_ref().strip_suffix("record").unwrap();
                    named.insert(Path::from(format!("{file}{writer}.{segment:06}")));
                }
            }
        }
        let there: HashSet<_> = self.segments().await.into_iter().collect();
        assert_eq!(there, named, "what is there is not what the records name");
        kept
    }
}

async fn fixture() -> (Fixture, Bucket) {
    let bucket = Bucket::new(S3Server::shared().await);
    let place = Place::Bucket(Bucket::new(S3Server::shared().await));
    (Fixture { store: bucket.store(), key: key(1, "file"), place }, bucket)
}

fn orphaned_segment(bucket: &Bucket, transfer: u128) -> Path {
    let transfer = Uuid::from_u128(transfer).to_string();
    bucket.prefix.clone().join(transfer).join("file").join(format!("{:032x}.000000", 7))
}

#[tokio::test]
async fn a_sound_bucket_passes_the_check_which_leaves_nothing() {
    let (fixture, bucket) = fixture().await;
    fixture.store.check().await.unwrap();
    assert!(bucket.objects().await.is_empty());
}

#[tokio::test]
async fn a_check_says_what_is_wrong_without_the_key() {
    let (_, mut bucket) = fixture().await;
    bucket.storage.secret_access_key = Secret::new("another-secret".to_owned());
    let error = bucket.store().check().await.unwrap_err();
    assert!(matches!(error, CheckError::Refused { action: "write", .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("another-secret"), "{error:?}");
    bucket.storage.endpoint = "http://127.0.0.1:1".to_owned();
    let error = bucket.store().check().await.unwrap_err();
    assert!(matches!(error, CheckError::Refused { action: "write", .. }), "{error:?}");
}

#[tokio::test]
async fn a_file_is_its_segments_and_a_record() {
    let (fixture, bucket) = fixture().await;
    let content = pattern(2 * MIB + 5);
    fixture.put(&content).await.unwrap();
    assert_eq!((bucket.kept().await, bucket.segments().await.len(), bucket.objects().await.len()), (1, 3, 4));
}

#[tokio::test]
async fn a_part_with_missing_segments_restarts_at_zero() {
    let (fixture, bucket) = fixture().await;
    let content = pattern(3 * MIB);
    fixture.cut_after(&content[..2 * MIB + 9]).await;
    bucket.client.delete(&bucket.segments().await[1]).await.unwrap();
    let error = fixture.receive(at(2 * MIB + 9, content.len()), chunks(b"")).await.unwrap_err();
    assert!(matches!(error, BlobError::WrongOffset { present: 0 }), "{error:?}");
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Nothing);
    assert_eq!(fixture.receive(at(0, content.len()), chunks(&content)).await.unwrap(), complete(&content));
    assert!(fixture.content().await == content);
    assert_eq!(bucket.kept().await, 1);
}

#[tokio::test]
async fn a_copy_of_altered_bytes_is_refused() {
    let (fixture, bucket) = fixture().await;
    fixture.put(&pattern(MIB)).await.unwrap();
    bucket.client.put(&bucket.segments().await[0], vec![7; MIB].into()).await.unwrap();
    let error = fixture.store.open_file(&fixture.key).await.unwrap_err();
    assert!(matches!(error, BlobError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn what_an_upload_left_that_was_killed_during_a_deletion_is_swept() {
    let (fixture, bucket) = fixture().await;
    fixture.put(b"bytes").await.unwrap();
    fixture.store.delete_transfer(Uuid::from_u128(1)).await.unwrap();
    assert_eq!(bucket.marks().await, 1);
    let orphan = orphaned_segment(&bucket, 1);
    bucket.client.put(&orphan, "orphan".into()).await.unwrap();
    // The transfer's own next upload, in progress.
    let mut upload = Upload::start(&fixture.store, &fixture.key, anew());
    upload.send(&pattern(MIB)).await;
    fixture.store.sweep().await.unwrap();
    assert!(bucket.segments().await.contains(&orphan), "at first it only looks");
    fixture.store.sweep().await.unwrap();
    assert!(!bucket.segments().await.contains(&orphan));
    assert_eq!(bucket.marks().await, 0);
    assert_eq!(upload.finish().await.unwrap(), complete(&pattern(MIB)));
    assert!(fixture.content().await == pattern(MIB));
    assert_eq!(bucket.kept().await, 1);
}

#[tokio::test]
async fn a_transfer_that_cannot_be_swept_keeps_no_other() {
    let (fixture, bucket) = fixture().await;
    fixture.put(b"bytes").await.unwrap();
    fixture.store.delete_transfer(Uuid::from_u128(1)).await.unwrap();
    let stuck = orphaned_segment(&bucket, 1);
    bucket.client.put(&stuck, "orphan".into()).await.unwrap();
    let record = Path::from(stuck.as_ref().replace(&format!("{:032x}.000000", 7), "record"));
    bucket.client.put(&record, "no record".into()).await.unwrap();
    fixture.store.sweep().await.unwrap();
    // Another one is deleted later.
    fixture.store.receive(&key(2, "file"), anew(), chunks(b"bytes"), |_| {}).await.unwrap();
    fixture.store.delete_transfer(Uuid::from_u128(2)).await.unwrap();
    let orphan = orphaned_segment(&bucket, 2);
    bucket.client.put(&orphan, "orphan".into()).await.unwrap();
    fixture.store.sweep().await.unwrap_err();
    fixture.store.sweep().await.unwrap_err();
    assert_eq!(bucket.segments().await, std::slice::from_ref(&stuck));
    assert_eq!(bucket.marks().await, 1);
    // It is tried again.
    bucket.client.delete(&record).await.unwrap();
    fixture.store.sweep().await.unwrap();
    assert!(bucket.segments().await.is_empty());
    assert_eq!(bucket.marks().await, 0);
}

#[tokio::test]
async fn a_deletion_that_a_crash_interrupted_can_be_done_again() {
    let (fixture, bucket) = fixture().await;
    // The records were deleted, and then the gateway was killed.
    bucket.client.put(&orphaned_segment(&bucket, 1), "bytes".into()).await.unwrap();
    assert_eq!(fixture.store.list_transfers().await.unwrap(), [Uuid::from_u128(1)]);
    fixture.store.delete_transfer(Uuid::from_u128(1)).await.unwrap();
    assert!(bucket.segments().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_continue_the_same_part_never_mix() {
    let (fixture, bucket) = fixture().await;
    let content = pattern(3 * MIB + 11);
    for round in 0..8_u128 {
        let key = key(round, "file");
        let first = chunks(&content[..MIB + 1]);
        fixture.store.receive(&key, anew(), first, |_| {}).await.unwrap();
        let broken = cut(&content[..MIB + 1]);
        fixture.store.receive(&key, anew(), broken, |_| {}).await.unwrap_err();
        let rivals = (0..4).map(|_| {
            let (store, key, content) = (bucket.store(), key.clone(), content.clone());
            tokio::spawn(async move {
                let request = at(MIB + 1, content.len());
                store.receive(&key, request, chunks(&content[MIB + 1..]), |_| {}).await
            })
        });
        let mut completed = 0;
        for ended in join_all(rivals.collect::<Vec<_>>()).await {
            match ended.unwrap() {
                Ok(Received::Complete { sha256: digest, .. }) => {
                    assert_eq!(digest, sha256(&content));
                    completed += 1;
                }
                Err(BlobError::Superseded | BlobError::WrongOffset { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(completed, 1, "round {round}");
        assert!(read_all(&fixture.store, &key).await.unwrap() == content);
    }
    assert_eq!(bucket.kept().await, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_survives_a_restart_of_the_killed_server() {
    let server = S3Server::start().await;
    let bucket = Bucket::new(&server);
    let (store, key, content) = (bucket.store(), key(1, "file"), pattern(8 * MIB));
    store.receive(&key, anew(), chunks(b"older"), |_| {}).await.unwrap();

    let mut upload = Upload::start(&store, &key, anew());
    upload.send(&content[..3 * MIB]).await;
    let is_under_way =
        async || matches!(store.received(&key).await.unwrap(), Progress::Part(size) if size > 0);
    eventually(seconds(30), is_under_way).await;
    server.kill().await;
    upload.offer(&content[3 * MIB..]).await;
    let error = upload.finish().await.unwrap_err();
    assert!(matches!(error, BlobError::Unavailable { .. }), "{error:?}");
    assert!(matches!(store.received(&key).await, Err(BlobError::Unavailable { .. })));
    assert!(matches!(store.delete_transfer(key.transfer()).await, Err(BlobError::Unavailable { .. })));

    server.restart().await;
    assert_eq!(read_all(&store, &key).await.unwrap(), b"older");
    let Progress::Part(present) = store.received(&key).await.unwrap() else { panic!("nothing was kept") };
    let present = usize::try_from(present).unwrap();
    assert!(present >= MIB, "{present}");
    let rest = chunks(&content[present..]);
    let received = bucket.store().receive(&key, at(present, content.len()), rest, |_| {}).await.unwrap();
    assert_eq!(received, complete(&content));
    assert!(read_all(&store, &key).await.unwrap() == content);
}

/// A server that turns away the first connections, as one does that is started again.
async fn hesitant(server: &S3Server, times: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = server.endpoint().replace("http://", "");
    tokio::spawn(async move {
        for _ in 0..times {
            drop(listener.accept().await.unwrap());
        }
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    address
}

#[tokio::test]
async fn a_server_that_turns_connections_away_for_seconds_is_waited_for() {
    let server = S3Server::shared().await;
    let mut bucket = Bucket::new(server);
    let (key, content) = (key(1, "file"), pattern(MIB));
    bucket.store().receive(&key, anew(), chunks(&content), |_| {}).await.unwrap();
    bucket.storage.endpoint = hesitant(server, 9).await;
    assert!(read_all(&bucket.store(), &key).await.unwrap() == content);
}
