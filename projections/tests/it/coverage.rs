//! Every event of the domain has a projection that handles it.

use std::{fs, path::Path};

use serde_json::Value;
use signalbox_event_store::RecordedEvent;
use signalbox_projections::{
    Projection, Rows, automation::AutomationProjection, extraction::ExtractionProjection,
    fleet::FleetProjection, identity::IdentityProjection, monitoring::MonitoringProjection,
    transfer::TransferProjection,
};
use uuid::Uuid;

use crate::{
    samples::{self, Sample},
    world::{World, at, dump},
};

/// Events that leave the rows as they are, on purpose.
const WITHOUT_EFFECT: [&str; 2] = ["late_report_received", "health_changed"];
/// Columns that every event of an aggregate changes.
const BOOKKEEPING: [&str; 5] = ["version", "position", "updated_at", "active_at", "last_seen"];

fn recorded(sample: &Sample, position: i64, sequence: i64) -> RecordedEvent {
    RecordedEvent {
        position,
        aggregate_type: sample.aggregate_type.to_owned(),
        aggregate_id: Uuid::from_u128(sample.aggregate_type.len() as u128),
        sequence,
        event_type: sample.event_type.clone(),
        event_version: sample.event_version.clone(),
        payload: sample.payload.clone(),
        metadata: Value::Null,
        recorded_at: at(position),
    }
}

/// One event after the other, in the order of their samples.
fn log() -> Vec<RecordedEvent> {
    let mut sequence = 0;
    let mut aggregate = "";
    let samples = samples::all();
    let numbered = samples.iter().zip(1..).map(|(sample, position)| {
        sequence = if sample.aggregate_type == aggregate { sequence + 1 } else { 1 };
        aggregate = sample.aggregate_type;
        recorded(sample, position, sequence)
    });
    numbered.collect()
}

async fn shown<P: Projection>(connection: &mut sqlx::PgConnection) -> Vec<(String, Value)> {
    let mut rows = dump::<P>(connection, "read").await;
    for (_, row) in &mut rows {
        row.as_object_mut().unwrap().retain(|column, _| !BOOKKEEPING.contains(&column.as_str()));
    }
    rows
}

async fn assert_decided<P: Projection>(world: &World, events: &[RecordedEvent]) {
    let mut connection = world.pool().acquire().await.unwrap();
    for event in events {
        let before = shown::<P>(&mut connection).await;
        let mut rows = P::Rows::default();
        let decoded = P::Rows::decode(event).unwrap();
        rows.fold(&mut connection, "read", vec![(event, decoded)]).await.unwrap();
        rows.write(&mut connection, "read", 0).await.unwrap();
        let changed = shown::<P>(&mut connection).await != before;
        let expected = !WITHOUT_EFFECT.contains(&event.event_type.as_str());
        assert_eq!(changed, expected, "{} changes rows: {changed}", event.event_type);
    }
}

#[tokio::test]
async fn every_event_changes_its_read_model_or_is_listed_as_without_effect() {
    let world = World::start().await;
    let of = |aggregates: &[&str]| -> Vec<_> {
        log().into_iter().filter(|event| aggregates.contains(&event.aggregate_type.as_str())).collect()
    };
    assert_decided::<AutomationProjection>(&world, &of(AutomationProjection::AGGREGATES)).await;
    assert_decided::<ExtractionProjection>(&world, &of(ExtractionProjection::AGGREGATES)).await;
    assert_decided::<FleetProjection>(&world, &of(FleetProjection::AGGREGATES)).await;
    assert_decided::<IdentityProjection>(&world, &of(IdentityProjection::AGGREGATES)).await;
    assert_decided::<MonitoringProjection>(&world, &of(MonitoringProjection::AGGREGATES)).await;
    assert_decided::<TransferProjection>(&world, &of(TransferProjection::AGGREGATES)).await;
    world.servers.finish().await;
}

#[test]
fn every_table_of_read_models_belongs_to_exactly_one_projection() {
    // Of all projections.
    const SHARED: [&str; 2] = ["checkpoints", "poisonous_events"];
    let projections = [
        AutomationProjection::TABLES,
        ExtractionProjection::TABLES,
        FleetProjection::TABLES,
        IdentityProjection::TABLES,
        MonitoringProjection::TABLES,
        TransferProjection::TABLES,
    ];
    let mut found = 0;
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/database/migrations");
    for file in fs::read_dir(migrations).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let made = text.lines().filter_map(|line| line.strip_prefix("CREATE TABLE read.")?.split(' ').next());
        for table in made.filter(|table| !SHARED.contains(table)) {
            let owners = projections.iter().filter(|tables| tables.contains(&table));
            assert_eq!(owners.count(), 1, "{table}");
            found += 1;
        }
    }
    assert_eq!(found, projections.concat().len());
}
