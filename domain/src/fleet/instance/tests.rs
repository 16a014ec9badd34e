use uuid::Uuid;

use super::{events::MAX_CONFIG, *};
use crate::{
    fleet::{Direction, MappingChanges, MappingSpec},
    kernel::{ChannelId, Decider, MappingId, Rejection, UserId},
};

const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(2));

fn mapping(number: u128, channel_id: &str) -> (MappingId, MappingSpec) {
    let spec = MappingSpec {
        channel_id: channel_id.to_owned(),
        channel_name: "Temperature".to_owned(),
        direction: Direction::Input,
        unit: "°C".to_owned(),
        event: Some(CHANNEL),
    };
    (MappingId(Uuid::from_u128(number)), spec)
}

fn new(name: &str, is_built_in: bool) -> NewInstance {
    let spec = InstanceSpec { name: name.to_owned(), demo_mode: true, enabled: true, config: None };
    let plugin = PluginRef { id: "weather".to_owned(), is_built_in };
    NewInstance { owner: UserId(Uuid::nil()), plugin, spec }
}

fn created(mappings: Vec<(MappingId, MappingSpec)>) -> Result<PluginInstance, Rejection> {
    let create = PluginInstanceCommand::Create { new: new("Roof", false), mappings };
    let mut instance = PluginInstance::default();
    for event in instance.decide(create)? {
        instance.evolve(event);
    }
    Ok(instance)
}

#[test]
fn an_instance_is_created_with_all_its_channels_or_not_at_all() {
    let instance = created(vec![mapping(1, "t"), mapping(2, "p")]).unwrap();
    assert_eq!(instance.present.unwrap().mappings.len(), 2);
    assert_eq!(created(vec![mapping(1, "t"), mapping(2, "t")]).unwrap_err().code, "channel_mapped");
}

#[test]
fn only_a_class_of_a_package_has_to_be_claimed() {
    let claims = |built_in| {
        let event = PluginInstanceEvent::PluginInstanceCreated(new("Roof", built_in));
        PluginInstance::claims(Uuid::nil(), &event).len()
    };
    assert_eq!((claims(true), claims(false)), (1, 2));
}

#[test]
fn a_configuration_of_blanks_is_none() {
    assert_eq!(InstanceConfig::clean(Some(" \n")), Ok(None));
    assert_eq!(InstanceConfig::clean(Some(" {} ")), Ok(Some("{}".to_owned())));
    assert!(InstanceConfig::clean(Some(&"x".repeat(MAX_CONFIG + 1))).is_err());
}

#[test]
fn a_report_that_says_nothing_new_is_no_event() {
    let mut instance = created(vec![]).unwrap();
    let report = |error: &str| PluginInstanceCommand::Report {
        status: InstanceStatus::Error,
        error: Some(error.into()),
    };
    let reported = instance.decide(report("no device")).unwrap();
    assert_eq!(reported.len(), 1);
    instance.evolve(reported[0].clone());
    assert_eq!(instance.decide(report("no device")), Ok(vec![]));
    assert_eq!(instance.decide(report("another")).unwrap().len(), 1);
}

#[test]
fn a_named_event_is_linked_again_because_it_may_have_been_deleted() {
    let instance = created(vec![mapping(1, "t")]).unwrap();
    let change = |event| PluginInstanceCommand::ChangeMapping {
        mapping: MappingId(Uuid::from_u128(1)),
        changes: MappingChanges { event, ..Default::default() },
    };
    let linked = instance.decide(change(Some(Some(CHANNEL)))).unwrap();
    assert_eq!(PluginInstance::claims(Uuid::nil(), &linked[0]).len(), 1);
    assert_eq!(instance.decide(change(None)), Ok(vec![]));
    let unlinked = instance.decide(change(Some(None))).unwrap();
    assert_eq!(PluginInstance::claims(Uuid::nil(), &unlinked[0]), vec![]);
}
