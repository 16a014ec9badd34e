use signalbox_blob_store::{BlobError, Progress, Receive, Received};

use crate::support::{Fixture, MIB, Upload, anew, at, chunks, complete, cut, pattern, sha256};

in_both_places! {
    an_upload_continues_where_it_was_cut
    it_continues_in_another_gateway_and_after_several_cuts
    a_body_that_ends_before_the_total_is_partial
    a_part_that_is_already_whole_completes_without_a_body
    a_wrong_offset_reports_the_right_one_and_changes_nothing
    an_upload_from_the_start_forgets_the_part
    a_part_is_what_counts_while_a_file_is_being_replaced
    limits_and_digests_hold_for_the_whole_file
    more_bytes_than_the_total_leave_what_was_there
    more_bytes_than_the_piece_leave_what_was_there
    a_complete_file_is_replaced_in_pieces
    a_killed_upload_is_continued_from_what_reached_the_disk
}

async fn an_upload_continues_where_it_was_cut(fixture: Fixture) {
    let content = pattern(4 * MIB + 5);
    let (first, rest) = content.split_at(MIB + 3);
    fixture.cut_after(first).await;
    let request = Receive {
        total: Some(rest.len() as u64),
        expected_sha256: Some(sha256(&content)),
        ..at(first.len(), content.len())
    };
    assert_eq!(fixture.receive(request, chunks(rest)).await.unwrap(), complete(&content));
    assert!(fixture.content().await == content);
    assert_eq!(fixture.kept().await, 1);
}

async fn it_continues_in_another_gateway_and_after_several_cuts(fixture: Fixture) {
    let content = pattern(3 * MIB);
    fixture.cut_after(&content[..10]).await;
    for (from, to) in [(10, MIB), (MIB, MIB), (MIB, 2 * MIB + 1)] {
        let body = cut(&content[from..to]);
        let error = fixture.receive(at(from, content.len()), body).await.unwrap_err();
        assert!(
            matches!(error, BlobError::Interrupted { received, .. } if received == to as u64),
            "{error:?}"
        );
    }
    let (other, rest) = (fixture.other_gateway(), &content[2 * MIB + 1..]);
    let received = other.receive(&fixture.key, at(2 * MIB + 1, content.len()), chunks(rest), |_| {}).await;
    assert_eq!(received.unwrap(), complete(&content));
}

async fn a_body_that_ends_before_the_total_is_partial(fixture: Fixture) {
    let content = pattern(2 * MIB);
    let (first, rest) = content.split_at(MIB);
    let request = Receive { total: Some(MIB as u64), ..at(0, content.len()) };
    let received = fixture.receive(request, chunks(first)).await.unwrap();
    assert_eq!(received, Received::Partial { size: MIB as u64 });
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Part(MIB as u64));
    let received = fixture.receive(at(MIB, content.len()), chunks(rest)).await.unwrap();
    assert_eq!(received, complete(&content));
}

async fn a_part_that_is_already_whole_completes_without_a_body(fixture: Fixture) {
    let content = pattern(MIB);
    fixture.cut_after(&content).await;
    let received = fixture.receive(at(MIB, MIB), chunks(b"")).await.unwrap();
    assert_eq!(received, complete(&content));
}

async fn a_wrong_offset_reports_the_right_one_and_changes_nothing(fixture: Fixture) {
    let error = fixture.receive(at(5, 10), chunks(b"fghij")).await.unwrap_err();
    assert!(matches!(error, BlobError::WrongOffset { present: 0 }), "{error:?}");

    fixture.cut_after(b"abc").await;
    for offset in [0, 2, 4] {
        let error = fixture.receive(at(offset, 10), chunks(b"xyz")).await.unwrap_err();
        assert!(matches!(error, BlobError::WrongOffset { present: 3 }), "{error:?}");
    }
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Part(3));

    let received = fixture.receive(at(3, 5), chunks(b"de")).await.unwrap();
    assert_eq!(received, complete(b"abcde"));
    let error = fixture.receive(at(3, 5), chunks(b"de")).await.unwrap_err();
    assert!(matches!(error, BlobError::WrongOffset { present: 5 }), "{error:?}");
    assert_eq!(fixture.content().await, b"abcde");
}

async fn an_upload_from_the_start_forgets_the_part(fixture: Fixture) {
    fixture.cut_after(&pattern(MIB)).await;
    assert_eq!(fixture.put(b"anew").await.unwrap(), complete(b"anew"));
    assert_eq!(fixture.content().await, b"anew");
    assert_eq!(fixture.kept().await, 1);
}

async fn a_part_is_what_counts_while_a_file_is_being_replaced(fixture: Fixture) {
    fixture.put(b"older").await.unwrap();
    fixture.cut_after(b"new").await;
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Part(3));
    assert_eq!(fixture.content().await, b"older");
    fixture.receive(at(3, 5), chunks(b"er")).await.unwrap();
    assert_eq!(fixture.content().await, b"newer");
}

async fn limits_and_digests_hold_for_the_whole_file(fixture: Fixture) {
    fixture.cut_after(b"abc").await;
    let error = fixture.receive(Receive { limit: 4, ..at(3, 5) }, chunks(b"de")).await.unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { limit: 4 }), "{error:?}");

    let wrong = Receive { expected_sha256: Some(sha256(b"de")), ..at(3, 5) };
    let error = fixture.receive(wrong, chunks(b"de")).await.unwrap_err();
    assert!(matches!(error, BlobError::ChecksumMismatch { .. }), "{error:?}");
    assert_eq!(fixture.kept().await, 0);
}

async fn more_bytes_than_the_total_leave_what_was_there(fixture: Fixture) {
    fixture.cut_after(b"abc").await;
    let error = fixture.receive(at(3, 5), chunks(b"def")).await.unwrap_err();
    assert!(matches!(error, BlobError::Overrun { total: 5 }), "{error:?}");
    assert_eq!(fixture.receive(at(3, 5), chunks(b"de")).await.unwrap(), complete(b"abcde"));
}

async fn more_bytes_than_the_piece_leave_what_was_there(fixture: Fixture) {
    fixture.cut_after(b"abc").await;
    let piece = Receive { total: Some(2), ..at(3, 9) };
    let error = fixture.receive(piece, chunks(b"def")).await.unwrap_err();
    assert!(matches!(error, BlobError::Overrun { total: 5 }), "{error:?}");
    assert_eq!(fixture.store.received(&fixture.key).await.unwrap(), Progress::Part(3));
}

async fn a_complete_file_is_replaced_in_pieces(fixture: Fixture) {
    fixture.put(b"older").await.unwrap();
    let piece = Receive { total: Some(3), ..at(0, 6) };
    assert_eq!(fixture.receive(piece, chunks(b"new")).await.unwrap(), Received::Partial { size: 3 });
    assert_eq!(fixture.content().await, b"older");
    assert_eq!(fixture.receive(at(3, 6), chunks(b"est")).await.unwrap(), complete(b"newest"));
    assert_eq!(fixture.content().await, b"newest");
}

async fn a_killed_upload_is_continued_from_what_reached_the_disk(fixture: Fixture) {
    let content = pattern(8 * MIB);
    let mut upload = Upload::start(&fixture.store, &fixture.key, anew());
    for chunk in content[..5 * MIB].chunks(100_000) {
        upload.send(chunk).await;
    }
    upload.kill().await;
    // The last batch may still be in a buffer: as for a real client, the answer contains the offset to continue at.
    let received = loop {
        let offset = match fixture.store.received(&fixture.key).await.unwrap() {
            Progress::Part(size) => usize::try_from(size).unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(offset >= 3 * MIB, "{offset}");
        match fixture.receive(at(offset, content.len()), chunks(&content[offset..])).await {
            Err(BlobError::WrongOffset { .. } | BlobError::Superseded) => {}
            result => break result.unwrap(),
        }
    };
    assert_eq!(received, complete(&content));
    assert!(fixture.content().await == content);
}
