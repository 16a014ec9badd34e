use signalbox_domain::{
    fleet::{
        Direction, InstanceConfig, InstanceSpec, InstanceStatus, MappingChanges, MappingSpec, NewInstance,
        NewPackage, PluginChannel, PluginClass, PluginInstanceEvent, PluginPackageEvent, PluginRef,
    },
    kernel::{ChannelId, MappingId, UserId},
};

use super::{id, sha256};

pub(super) fn after_package(event: Option<&PluginPackageEvent>) -> Option<PluginPackageEvent> {
    let Some(event) = event else {
        let channel = PluginChannel {
            id: "temperature".to_owned(),
            name: "Temperature".to_owned(),
            direction: Direction::Input,
            unit: "°C".to_owned(),
            min_value: -40.5,
            max_value: 60.0,
        };
        let class = PluginClass {
            id: "weather".to_owned(),
            name: "Weather".to_owned(),
            version: "1.2.0".to_owned(),
            vendor: "Example".to_owned(),
            description: "A station".to_owned(),
            url: "https://example.org".to_owned(),
            config_schema: r#"{"type": "object"}"#.to_owned(),
            channels: vec![channel],
        };
        return Some(PluginPackageEvent::PluginPackageInstalled(NewPackage {
            owner: UserId(id(7)),
            name: "plugin-weather".to_owned(),
            version: "1.2.0".to_owned(),
            file_name: "plugin_weather-1.2.0-py3-none-any.whl".to_owned(),
            size: 1234,
            sha256: sha256(),
            classes: vec![class],
        }));
    };
    match event {
        PluginPackageEvent::PluginPackageInstalled(new) => {
            let class_ids = vec!["weather".to_owned()];
            Some(PluginPackageEvent::PluginPackageUninstalled { name: new.name.clone(), class_ids })
        }
        PluginPackageEvent::PluginPackageUninstalled { .. } => None,
    }
}

pub(super) fn after_instance(event: Option<&PluginInstanceEvent>) -> Option<PluginInstanceEvent> {
    let mapping = MappingId(id(3));
    let spec = InstanceSpec {
        name: "Roof".to_owned(),
        demo_mode: false,
        enabled: true,
        config: Some(InstanceConfig::Sealed("v1.key.bm9uY2U".to_owned())),
    };
    let Some(event) = event else {
        let plugin = PluginRef { id: "weather".to_owned(), is_built_in: false };
        let new = NewInstance { owner: UserId(id(7)), plugin, spec };
        return Some(PluginInstanceEvent::PluginInstanceCreated(new));
    };
    match event {
        PluginInstanceEvent::PluginInstanceCreated(_) => {
            let spec = MappingSpec {
                channel_id: "temperature".to_owned(),
                channel_name: "Temperature".to_owned(),
                direction: Direction::Input,
                unit: "°C".to_owned(),
                event: Some(ChannelId(id(4))),
            };
            Some(PluginInstanceEvent::ChannelMapped { mapping, spec })
        }
        PluginInstanceEvent::ChannelMapped { .. } => {
            let changes = MappingChanges {
                channel_name: Some("Outside".to_owned()),
                direction: Some(Direction::Bidirectional),
                unit: Some("K".to_owned()),
                event: Some(None),
            };
            Some(PluginInstanceEvent::ChannelMappingUpdated { mapping, changes })
        }
        PluginInstanceEvent::ChannelMappingUpdated { .. } => {
            Some(PluginInstanceEvent::ChannelMappingRemoved { mapping })
        }
        PluginInstanceEvent::ChannelMappingRemoved { .. } => {
            let (status, error) = (InstanceStatus::Error, Some("no device".to_owned()));
            Some(PluginInstanceEvent::PluginInstanceReported { status, error })
        }
        PluginInstanceEvent::PluginInstanceReported { .. } => {
            let to = InstanceSpec { name: "Hall".to_owned(), demo_mode: true, enabled: false, config: None };
            Some(PluginInstanceEvent::PluginInstanceUpdated { from: spec, to })
        }
        PluginInstanceEvent::PluginInstanceUpdated { .. } => {
            Some(PluginInstanceEvent::PluginInstanceDeleted { name: "Hall".to_owned() })
        }
        PluginInstanceEvent::PluginInstanceDeleted { .. } => None,
    }
}
