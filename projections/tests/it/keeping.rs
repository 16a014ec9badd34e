//! Documents whose text is kept count before the read model shows their jobs.

use std::slice::from_ref;

use futures::future::join_all;
use signalbox_domain::kernel::{ExtractionJobId, UserId};
use signalbox_projections::extraction::keeping;
use uuid::Uuid;

use crate::{poison::append, samples, world::World};

#[tokio::test]
async fn notes_at_the_same_moment_stay_within_the_limit() {
    let world = World::start().await;
    let (pool, owner) = (world.pool(), UserId(Uuid::from_u128(7)));
    let jobs: Vec<_> = (1..=12).map(|number| ExtractionJobId(Uuid::from_u128(number))).collect();
    let note = |job| keeping::note(pool, owner, from_ref(job), &[400], 1000);
    let refused: Vec<Option<i64>> =
        join_all(jobs.iter().map(note)).await.into_iter().map(Result::unwrap).collect();
    let (taken_in, others): (Vec<_>, Vec<_>) =
        jobs.iter().zip(refused).partition(|(_, taken)| taken.is_none());
    assert_eq!(taken_in.len(), 3, "the third one reaches the limit");
    assert!(others.iter().all(|(_, taken)| *taken == Some(1200)), "{others:?}");
    // A repetition finds room for its own document, another user for all of theirs.
    assert_eq!(note(taken_in[0].0).await.unwrap(), None);
    let stranger = UserId(Uuid::from_u128(8));
    assert_eq!(keeping::note(pool, stranger, from_ref(others[0].0), &[400], 1000).await.unwrap(), None);
    keeping::release(pool, from_ref(taken_in[0].0)).await.unwrap();
    assert_eq!(note(others[1].0).await.unwrap(), None);
    world.servers.finish().await;
}

/// A job that was taken in counts until it shows, also when others of its batch were refused.
#[tokio::test]
async fn only_jobs_that_the_log_has_not_are_forgotten() {
    let world = World::start().await;
    let (pool, owner) = (world.pool(), UserId(Uuid::from_u128(7)));
    let new_id = || ExtractionJobId(world.clock.new_id());
    let (taken_in, refused) = (new_id(), new_id());
    assert_eq!(keeping::note(pool, owner, &[taken_in, refused], &[400, 500], 1000).await.unwrap(), None);
    let submitted =
        samples::all().into_iter().find(|sample| sample.event_type == "extraction_submitted").unwrap();
    let payload = submitted.payload.to_string();
    append(&world, "extraction_job", &taken_in.to_string(), 1, "extraction_submitted", &payload).await;
    keeping::release(pool, &[taken_in, refused]).await.unwrap();
    let another = new_id();
    assert_eq!(keeping::note(pool, owner, &[another], &[1], 400).await.unwrap(), Some(400));
    let batch = [(); 3].map(|()| new_id());
    let stranger = UserId(world.clock.new_id());
    let note_all = async |sizes: &[i64; 3]| keeping::note(pool, stranger, &batch, sizes, 1000).await.unwrap();
    assert_eq!(note_all(&[400, 600, 1]).await, Some(0), "the last one is refused");
    assert_eq!(note_all(&[400, 599, 900]).await, None, "the last one reaches the limit");
    world.servers.finish().await;
}
