use futures::future::join_all;
use signalbox_blob_store::{BlobError, Progress, Received};

use crate::support::{Fixture, MIB, Upload, anew, at, chunks, complete, key, pattern, read_all};

in_both_places! {
    the_newer_of_two_uploads_from_the_start_wins
    an_older_upload_that_only_has_to_end_does_not_win_either
    a_continued_upload_takes_over_from_one_that_hangs
    nothing_is_appended_to_a_file_that_another_upload_completed
    many_uploads_of_one_file_leave_one_whole_file
    uploads_of_different_files_do_not_meet
}

async fn the_newer_of_two_uploads_from_the_start_wins(fixture: Fixture) {
    let (old, new) = (vec![1; 2 * MIB], pattern(2 * MIB));
    let mut older = Upload::start(&fixture.store, &fixture.key, anew());
    older.send(&old[..MIB]).await;
    let mut newer = Upload::start(&fixture.other_gateway(), &fixture.key, anew());
    newer.send(&new[..MIB]).await;

    older.offer(&old[MIB..]).await;
    assert!(matches!(older.finish().await, Err(BlobError::Superseded)));
    newer.send(&new[MIB..]).await;
    assert_eq!(newer.finish().await.unwrap(), complete(&new));
    assert!(fixture.content().await == new);
    assert_eq!(fixture.kept().await, 1);
}

async fn an_older_upload_that_only_has_to_end_does_not_win_either(fixture: Fixture) {
    let mut older = Upload::start(&fixture.store, &fixture.key, anew());
    older.send(b"old").await;
    let mut newer = Upload::start(&fixture.store, &fixture.key, anew());
    newer.send(b"new").await;
    assert!(matches!(older.finish().await, Err(BlobError::Superseded)));
    assert_eq!(newer.finish().await.unwrap(), complete(b"new"));
}

async fn a_continued_upload_takes_over_from_one_that_hangs(fixture: Fixture) {
    let content = pattern(4 * MIB);
    let mut hanging = Upload::start(&fixture.store, &fixture.key, anew());
    hanging.send(&content[..MIB]).await;
    let present = await_part(&fixture, MIB).await;

    let (other, rest) = (fixture.other_gateway(), &content[present..]);
    let received = other.receive(&fixture.key, at(present, content.len()), chunks(rest), |_| {}).await;
    assert_eq!(received.unwrap(), complete(&content));
    hanging.offer(&[0; MIB]).await;
    assert!(matches!(hanging.finish().await, Err(BlobError::Superseded)));
    assert!(fixture.content().await == content);
}

async fn nothing_is_appended_to_a_file_that_another_upload_completed(fixture: Fixture) {
    fixture.cut_after(b"abc").await;
    let mut slow = Upload::start(&fixture.store, &fixture.key, at(3, 6));
    slow.send(b"").await;
    let mut upload = Upload::start(&fixture.store, &fixture.key, at(3, 3));
    upload.send(b"").await;
    assert_eq!(upload.finish().await.unwrap(), complete(b"abc"));
    slow.offer(b"def").await;
    assert!(matches!(slow.finish().await, Err(BlobError::Superseded)));
    assert_eq!(fixture.content().await, b"abc");
}

async fn many_uploads_of_one_file_leave_one_whole_file(fixture: Fixture) {
    let stores = [fixture.store.clone(), fixture.other_gateway()];
    let uploads = (0..24_u8).map(|number| {
        let (store, key) = (stores[usize::from(number % 2)].clone(), fixture.key.clone());
        tokio::spawn(async move {
            let content = vec![number; 2 * MIB + usize::from(number)];
            store.receive(&key, anew(), chunks(&content), |_| {}).await
        })
    });
    let mut completed = 0;
    for result in join_all(uploads).await {
        match result.unwrap() {
            Ok(Received::Complete { .. }) => completed += 1,
            Err(BlobError::Superseded) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(completed > 0);
    let content = fixture.content().await;
    assert!(content.iter().all(|byte| *byte == content[0]));
    assert_eq!(content.len(), 2 * MIB + usize::from(content[0]));
    assert_eq!(fixture.kept().await, 1);
}

async fn uploads_of_different_files_do_not_meet(fixture: Fixture) {
    let uploads = (0..16_u8).map(|number| {
        let (store, key) = (fixture.store.clone(), key(u128::from(number % 3), &format!("file {number}")));
        tokio::spawn(async move {
            let content = vec![number; MIB + usize::from(number)];
            let received = store.receive(&key, anew(), chunks(&content), |_| {}).await.unwrap();
            assert_eq!(received, complete(&content));
            assert!(read_all(&store, &key).await.unwrap() == content);
        })
    });
    for result in join_all(uploads).await {
        result.unwrap();
    }
    assert_eq!(fixture.kept().await, 16);
}

/// Waits until at least half of `sent` bytes are in the part; returns their number.
async fn await_part(fixture: &Fixture, sent: usize) -> usize {
    loop {
        if let Progress::Part(size) = fixture.store.received(&fixture.key).await.unwrap()
            && size >= sent as u64 / 2
        {
            return usize::try_from(size).unwrap();
        }
        tokio::task::yield_now().await;
    }
}
