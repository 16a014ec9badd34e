use futures::future::join_all;
use signalbox_blob_store::{BlobError, BlobStore, Progress};
use uuid::Uuid;

use crate::support::{Fixture, MIB, Place, Upload, anew, chunks, complete, key, pattern, try_collect};

in_both_places! {
    deleting_removes_files_and_parts_of_that_transfer_only
    a_read_in_progress_completes_or_fails
    an_upload_under_way_ends_and_leaves_nothing
    an_upload_of_before_the_deletion_does_not_touch_one_of_after_it
    deleting_while_many_uploads_begin_and_end_leaves_nothing
}

async fn deleting_removes_files_and_parts_of_that_transfer_only(fixture: Fixture) {
    fixture.put(b"bytes").await.unwrap();
    fixture.store.receive(&key(1, "other"), anew(), chunks(b"bytes"), |_| {}).await.unwrap();
    fixture.cut_after(b"part").await;
    fixture.store.receive(&key(2, "other"), anew(), chunks(b"bytes"), |_| {}).await.unwrap();
    assert_eq!(fixture.transfers().await, [Uuid::from_u128(1), Uuid::from_u128(2)]);

    for _ in 0..2 {
        fixture.store.delete_transfer(Uuid::from_u128(1)).await.unwrap();
        assert_eq!(fixture.transfers().await, [Uuid::from_u128(2)]);
        assert_eq!(fixture.kept().await, 1);
    }
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Nothing);
    assert!(matches!(fixture.store.read(&fixture.key, None).await.err(), Some(BlobError::NotFound)));
    assert!(matches!(fixture.store.digest(&fixture.key).await, Err(BlobError::NotFound)));
}

async fn a_read_in_progress_completes_or_fails(fixture: Fixture) {
    let content = pattern(3 * MIB);
    fixture.put(&content).await.unwrap();
    let (_, body) = fixture.store.read(&fixture.key, None).await.unwrap();
    fixture.store.delete_transfer(fixture.key.transfer()).await.unwrap();
    match try_collect(body).await {
        Ok(read) => assert!(read == content),
        Err(error) => assert!(matches!(fixture.place, Place::Bucket(_)), "{error}"),
    }
}

async fn an_upload_under_way_ends_and_leaves_nothing(fixture: Fixture) {
    let mut upload = Upload::start(&fixture.store, &fixture.key, anew());
    upload.send(&pattern(MIB)).await;
    fixture.other_gateway().delete_transfer(fixture.key.transfer()).await.unwrap();
    upload.offer(&pattern(MIB)).await;
    assert!(matches!(upload.finish().await, Err(BlobError::Superseded)));
    assert_eq!(fixture.kept().await, 0);
}

async fn an_upload_of_before_the_deletion_does_not_touch_one_of_after_it(fixture: Fixture) {
    let mut before = Upload::start(&fixture.store, &fixture.key, anew());
    before.send(b"old").await;
    fixture.store.delete_transfer(fixture.key.transfer()).await.unwrap();
    let mut after = Upload::start(&fixture.store, &fixture.key, anew());
    after.send(b"new").await;
    assert!(matches!(before.finish().await, Err(BlobError::Superseded)));
    assert_eq!(after.finish().await.unwrap(), complete(b"new"));
    assert_eq!(fixture.content().await, b"new");
}

async fn deleting_while_many_uploads_begin_and_end_leaves_nothing(fixture: Fixture) {
    let uploads = (0..32).map(|number| {
        let (store, key) = (fixture.store.clone(), key(1, &format!("file {number}")));
        tokio::spawn(async move { store.receive(&key, anew(), chunks(&[7; 200_000]), |_| {}).await })
    });
    let uploads: Vec<_> = uploads.collect();
    for _ in 0..20 {
        fixture.store.delete_transfer(Uuid::from_u128(1)).await.unwrap();
    }
    for result in join_all(uploads).await {
        let result = result.unwrap();
        assert!(matches!(result, Ok(_) | Err(BlobError::Superseded)), "{result:?}");
    }
    fixture.store.delete_transfer(Uuid::from_u128(1)).await.unwrap();
    assert_eq!(fixture.kept().await, 0);
}

#[tokio::test]
async fn opening_finishes_a_deletion_that_a_crash_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let aside = folder.path().join(".deleted").join(format!("{}.0", Uuid::from_u128(1)));
    std::fs::create_dir_all(&aside).unwrap();
    std::fs::write(aside.join("file"), b"bytes").unwrap();
    let store = BlobStore::open(folder.path().to_owned()).unwrap();
    assert!(!aside.exists());
    assert!(store.list_transfers().await.unwrap().is_empty());
}
