//! Lists of kinds of events: each kind of an aggregate is in the list, or among those left out of it on purpose.

use std::collections::BTreeSet;

use serde_json::Value;
use signalbox_domain::{automation::EventType, kernel::Decider};
use signalbox_event_store::read_after;
use signalbox_projections::{
    automation::{
        AlarmRow, ContactRow, RuleRow, WebhookRow,
        deliveries::DeliveryBatchRow,
        outgoing::{Background, PUBLISHED},
    },
    extraction::ExtractionJobRow,
    fleet::{InstanceRow, firmware::FirmwareRow},
    monitoring::{
        ChannelRow, dashboards::DashboardRow, experiments::ExperimentRow, log_entries::LogEntryRow,
    },
    register::{Kept, Resource},
    transfer::{AgentRow, AgentTokenRow, JobRow, TransferRow},
};

use crate::{poison::append, samples, world::World};

fn assert_decided<R: Resource>(listed: &[&str], left_out: &[&str]) {
    let aggregate = R::Aggregate::TYPE;
    let of_it = samples::all().into_iter().filter(|sample| sample.aggregate_type == aggregate);
    let kinds: BTreeSet<_> = of_it.map(|sample| sample.event_type).collect();
    let decided = [listed, left_out].concat();
    let once: BTreeSet<_> = decided.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(once.len(), decided.len(), "a kind of {aggregate} is listed twice");
    assert_eq!(once, kinds, "kinds of {aggregate}");
}

/// `lasting`: the kinds that are read one by one.
fn assert_passing<R: Resource>(lasting: &[&str]) {
    assert_decided::<R>(&R::passing(), lasting);
}

#[test]
fn every_event_of_a_resource_is_passing_or_read_one_by_one() {
    assert_passing::<AgentRow>(&["agent_created", "agent_deleted", "agent_updated"]);
    assert_passing::<AgentTokenRow>(&["agent_token_created", "agent_token_revoked"]);
    assert_passing::<JobRow>(&["job_created", "job_deleted", "job_updated"]);
    assert_passing::<TransferRow>(&[
        "files_staged",
        "late_report_received",
        "staged_bytes_deleted",
        "transfer_cancelled",
        "transfer_completed",
        "transfer_deleted",
        "transfer_dispatched",
        "transfer_failed",
        "transfer_progressed",
        "transfer_requested",
        "transfer_requeued",
        "transfer_staged",
    ]);
    assert_passing::<ChannelRow>(&[
        "channel_created",
        "channel_deleted",
        "channel_updated",
        "channel_values_deleted",
    ]);
    assert_passing::<ExperimentRow>(&[
        "experiment_deleted",
        "experiment_renamed",
        "experiment_started",
        "experiment_stopped",
    ]);
    assert_passing::<LogEntryRow>(&["log_entry_edited", "log_entry_marked", "log_entry_written"]);
    assert_passing::<DashboardRow>(&DashboardRow::changes());
    assert_passing::<RuleRow>(&["rule_created", "rule_deleted", "rule_silenced", "rule_updated"]);
    assert_passing::<AlarmRow>(&[
        "alarm_acknowledged",
        "alarm_announced",
        "alarm_cleared",
        "alarm_fired",
        "alarm_started",
        "alarm_unacknowledged",
    ]);
    assert_passing::<ContactRow>(&["contact_created", "contact_deleted", "contact_updated"]);
    assert_passing::<WebhookRow>(&[
        "webhook_created",
        "webhook_deleted",
        "webhook_replay_requested",
        "webhook_updated",
    ]);
    assert_passing::<DeliveryBatchRow>(&[
        "attempts_begun",
        "attempts_ended",
        "callback_queued",
        "deliveries_queued",
        "deliveries_requeued",
        "message_queued",
    ]);
    assert_passing::<ExtractionJobRow>(&[
        "extraction_begun",
        "extraction_cancelled",
        "extraction_completed",
        "extraction_deleted",
        "extraction_discarded",
        "extraction_failed",
        "extraction_given_back",
        "extraction_input_removed",
        "extraction_released",
        "extraction_result_expired",
        "extraction_retried",
        "extraction_submitted",
    ]);
    assert_passing::<InstanceRow>(&[
        "channel_mapped",
        "channel_mapping_removed",
        "channel_mapping_updated",
        "plugin_instance_created",
        "plugin_instance_deleted",
        "plugin_instance_updated",
    ]);
    assert_passing::<FirmwareRow>(&[
        "firmware_apply_requested",
        "firmware_bundle_added",
        "firmware_claimed",
        "firmware_completed",
        "firmware_created",
        "firmware_deleted",
        "firmware_downloaded",
        "firmware_failed",
        "firmware_files_removed",
        "firmware_rollback_failed",
        "firmware_rollback_requested",
        "firmware_rolled_back",
        "firmware_verified",
    ]);
}

#[test]
fn every_event_of_a_kept_resource_makes_a_version_or_is_listed_as_making_none() {
    assert_decided::<JobRow>(&JobRow::changes(), &["job_firing_skipped"]);
    assert_decided::<DashboardRow>(&DashboardRow::changes(), &[]);
    assert_decided::<RuleRow>(&RuleRow::changes(), &["rule_silenced", "rule_triggered"]);
    assert_decided::<WebhookRow>(
        &WebhookRow::changes(),
        &["webhook_replay_advanced", "webhook_replay_requested"],
    );
}

/// Also finds an aggregate whose earlier events are not read: its job or its name is missing.
#[tokio::test]
async fn exactly_the_listed_kinds_are_published_and_they_cover_all_webhook_types() {
    let world = World::start().await;
    let (mut id, mut aggregate, mut sequence) = (world.clock.new_id(), "", 0);
    for sample in samples::all() {
        if sample.aggregate_type != aggregate {
            (id, aggregate, sequence) = (world.clock.new_id(), sample.aggregate_type, 0);
        }
        sequence += 1;
        let (word, mut payload) = (sample.event_type.as_str(), sample.payload);
        // Of these kinds, only such events are published.
        match word {
            "agent_connected" => payload["was_away"] = true.into(),
            "log_entry_written" => payload["log_type"] = "error".into(),
            "alarm_acknowledged" | "alarm_cleared" | "alarm_fired" => payload["silenced"] = false.into(),
            _ => {}
        }
        append(&world, aggregate, &id.to_string(), sequence, word, &payload.to_string()).await;
    }
    let slice = read_after::<Value>(&mut world.pool().acquire().await.unwrap(), 0, 1000).await.unwrap();
    let background = Background::of(world.pool(), &slice.events, true).await.unwrap();
    let (mut kinds, mut types) = (BTreeSet::new(), BTreeSet::new());
    for event in &slice.events {
        let Some(outgoing) = background.outgoing(event).unwrap() else { continue };
        assert!(!outgoing.body.contains(r#"_name":"""#), "{}", outgoing.body);
        kinds.insert(event.event_type.as_str());
        types.insert(outgoing.event_type);
    }
    assert_eq!(kinds, PUBLISHED.iter().copied().collect());
    assert_eq!(types, BTreeSet::from(EventType::ALL));
    world.servers.finish().await;
}
