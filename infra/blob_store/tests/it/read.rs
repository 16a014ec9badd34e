use std::io::{Read, Seek};

use futures::{StreamExt, TryStreamExt};
use signalbox_blob_store::BlobError;

use crate::support::{Fixture, MIB, Place, collect, key, pattern, try_collect};

in_both_places! {
    a_range_gives_its_bytes_and_the_whole_size
    a_range_beyond_the_end_is_cut
    a_reader_sees_one_version_of_a_file
    a_file_can_be_read_twice
    chunks_that_are_kept_keep_their_bytes
    a_file_cut_short_is_an_error_and_not_a_short_file
    an_unknown_file_is_not_found
}

async fn a_range_gives_its_bytes_and_the_whole_size(fixture: Fixture) {
    let content = pattern(2 * MIB + 7);
    fixture.put(&content).await.unwrap();
    let end = content.len();
    for range in [0..0, 0..1, 1..end, 5..MIB + 9, MIB..MIB, end - 1..end, 0..end] {
        let part = range.start as u64..range.end as u64;
        let (size, body) = fixture.store.read(&fixture.key, Some(part)).await.unwrap();
        assert_eq!(size, end as u64);
        assert!(collect(body).await == content[range.clone()], "{range:?}");
    }
}

async fn a_range_beyond_the_end_is_cut(fixture: Fixture) {
    fixture.put(b"0123456789").await.unwrap();
    for (range, expected) in [(8..100, "89"), (10..20, ""), (11..20, ""), (0..u64::MAX, "0123456789")] {
        let (_, body) = fixture.store.read(&fixture.key, Some(range)).await.unwrap();
        assert_eq!(collect(body).await, expected.as_bytes());
    }
}

async fn a_reader_sees_one_version_of_a_file(fixture: Fixture) {
    let content = pattern(2 * MIB);
    fixture.put(&content).await.unwrap();
    let (_, mut body) =
        fixture.store.read(&fixture.key, None).await.map(|(size, body)| (size, body.boxed())).unwrap();
    let mut read = body.try_next().await.unwrap().unwrap().to_vec();
    fixture.put(b"another").await.unwrap();
    match try_collect(body).await {
        Ok(rest) => {
            read.extend(rest);
            assert!(read == content);
        }
        Err(error) => assert!(matches!(fixture.place, Place::Bucket(_)), "{error}"),
    }
    assert_eq!(fixture.content().await, b"another");
}

async fn a_file_can_be_read_twice(fixture: Fixture) {
    assert!(matches!(fixture.store.open_file(&fixture.key).await, Err(BlobError::NotFound)));
    fixture.put(b"0123456789").await.unwrap();
    let (size, mut file) = fixture.store.open_file(&fixture.key).await.unwrap();
    fixture.put(b"another").await.unwrap();
    for _ in 0..2 {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((size, text.as_str()), (10, "0123456789"));
        file.rewind().unwrap();
    }
}

async fn chunks_that_are_kept_keep_their_bytes(fixture: Fixture) {
    let content = pattern(3 * MIB);
    fixture.put(&content).await.unwrap();
    let (_, body) = fixture.store.read(&fixture.key, None).await.unwrap();
    let kept: Vec<_> = body.try_collect().await.unwrap();
    assert!(kept.concat() == content);
}

async fn a_file_cut_short_is_an_error_and_not_a_short_file(fixture: Fixture) {
    fixture.put(&pattern(MIB)).await.unwrap();
    let (_, body) = fixture.store.read(&fixture.key, None).await.unwrap();
    fixture.cut_short().await;
    let error = body.try_fold(0, |sum, chunk| async move { Ok(sum + chunk.len()) }).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

async fn an_unknown_file_is_not_found(fixture: Fixture) {
    fixture.put(b"bytes").await.unwrap();
    for key in [key(1, "other"), key(9, "../dir with spaces/Übung.bin")] {
        assert!(matches!(fixture.store.read(&key, None).await.err(), Some(BlobError::NotFound)));
    }
}
