//! Every version of every event that was ever written must load for ever: `golden/<aggregate>/<event>.v<n>.json`.
//! Files are added (`SIGNALBOX_WRITE_GOLDEN=1` writes the missing ones) and never changed.

use std::{
    collections::{BTreeSet, HashSet},
    env, fs,
    path::{Path, PathBuf},
};

use chrono::DateTime;
use serde_json::Value;
use signalbox_domain::{
    catalog::{Aggregate, Kind, Visitor},
    kernel::Decider,
};
use signalbox_event_store::RecordedEvent;
use uuid::Uuid;

use crate::{log::json, samples};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

struct Golden {
    event: RecordedEvent,
    place: String,
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn golden_files() -> Vec<Golden> {
    entries(&folder()).iter().flat_map(|aggregate| entries(aggregate)).map(|path| golden(&path)).collect()
}

fn golden(path: &Path) -> Golden {
    let place = path.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
    let (aggregate, file) = place.split_once('/').unwrap();
    let (event_type, version) = file.strip_suffix(".json").unwrap().rsplit_once(".v").unwrap();
    let payload = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    Golden { event: recorded(aggregate, event_type, version, payload), place }
}

fn recorded(aggregate_type: &str, event_type: &str, event_version: &str, payload: Value) -> RecordedEvent {
    RecordedEvent {
        position: 1,
        aggregate_type: aggregate_type.to_owned(),
        aggregate_id: Uuid::nil(),
        sequence: 1,
        event_type: event_type.to_owned(),
        event_version: event_version.to_owned(),
        payload,
        metadata: Value::Null,
        recorded_at: DateTime::UNIX_EPOCH,
    }
}

/// The event as today's program writes it.
fn rewritten(event: &RecordedEvent) -> Value {
    struct Through<'a>(&'a RecordedEvent);

    impl Visitor for Through<'_> {
        type Output = Value;

        fn visit<D: Decider>(self) -> Value {
            json(&self.0.decode::<D>().unwrap())
        }
    }

    Aggregate::of_word(&event.aggregate_type).unwrap().accept(Through(event))
}

#[test]
fn every_event_ever_written_loads_and_is_written_the_same() {
    let samples = samples::all();
    for Golden { event, place } in golden_files() {
        let today = samples
            .iter()
            .find(|sample| {
                sample.aggregate_type == event.aggregate_type && sample.event_type == event.event_type
            })
            .unwrap_or_else(|| panic!("{place} is of no event of the domain"));
        let written = rewritten(&event);
        if event.event_version == today.event_version {
            assert_eq!(written, event.payload, "{place}");
        }
        let again = recorded(&event.aggregate_type, &event.event_type, &today.event_version, written.clone());
        assert_eq!(rewritten(&again), written, "{place}");
    }
}

struct IsRead<'a>(&'a RecordedEvent);

impl Visitor for IsRead<'_> {
    type Output = bool;

    fn visit<D: Decider>(self) -> bool {
        self.0.decode::<D>().is_ok()
    }
}

/// An addition of a newer version would be lost without a trace; set aside, the event waits for a program that knows it.
#[test]
fn an_event_of_a_newer_version_is_not_read() {
    for sample in samples::all() {
        let newest: u32 = sample.event_version.parse().unwrap();
        for (version, is_read) in [(newest, true), (newest + 1, false)] {
            let event = recorded(
                sample.aggregate_type,
                &sample.event_type,
                &version.to_string(),
                sample.payload.clone(),
            );
            let found = Aggregate::of_word(sample.aggregate_type).unwrap().accept(IsRead(&event));
            assert_eq!(found, is_read, "{} v{version}", sample.event_type);
        }
    }
}

#[test]
fn no_event_lacks_its_golden_file() {
    if env::var_os("SIGNALBOX_WRITE_GOLDEN").is_some() {
        write_missing();
    }
    let present: HashSet<_> = golden_files().into_iter().map(|golden| golden.place).collect();
    let missing: Vec<_> =
        samples::all().iter().map(place_of).filter(|place| !present.contains(place)).collect();
    assert!(missing.is_empty(), "SIGNALBOX_WRITE_GOLDEN=1 writes these: {missing:#?}");
}

fn place_of(sample: &samples::Sample) -> String {
    format!("{}/{}.v{}.json", sample.aggregate_type, sample.event_type, sample.event_version)
}

fn write_missing() {
    for sample in samples::all() {
        let path = folder().join(place_of(&sample));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(path, format!("{:#}\n", sample.payload)).unwrap();
        }
    }
}

/// The aggregates that the domain's sources declare.
fn declared_aggregates(folder: &Path, found: &mut BTreeSet<String>) {
    for path in entries(folder) {
        if path.is_dir() {
            declared_aggregates(&path, found);
            continue;
        }
        let source = fs::read_to_string(path).unwrap();
        let names =
            source.lines().filter_map(|line| line.trim().strip_prefix("const TYPE: &'static str = \""));
        found.extend(names.map(|name| name.trim_end_matches("\";").to_owned()));
    }
}

#[test]
fn no_aggregate_of_the_domain_lacks_samples() {
    let mut declared = BTreeSet::new();
    declared_aggregates(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../domain/src"), &mut declared);
    let sampled: BTreeSet<_> = samples::all().iter().map(|sample| sample.aggregate_type.to_owned()).collect();
    assert_eq!(declared, sampled);
    let listed: BTreeSet<_> = Aggregate::ALL.iter().map(|aggregate| aggregate.word().to_owned()).collect();
    assert_eq!(listed, declared, "the catalogue");
}

#[test]
fn samples_are_of_the_kinds_and_versions_of_the_catalogue() {
    let of = |kind: Kind| (kind.aggregate().word(), kind.word().to_owned(), kind.version().to_owned());
    let listed: BTreeSet<_> = Kind::all().map(of).collect();
    let samples = samples::all();
    let sampled: BTreeSet<_> = samples
        .iter()
        .map(|sample| (sample.aggregate_type, sample.event_type.clone(), sample.event_version.clone()))
        .collect();
    assert_eq!(sampled, listed);
    for sample in samples {
        assert_eq!(sample.payload["type"], sample.event_type.as_str(), "the word in the payload");
    }
}
