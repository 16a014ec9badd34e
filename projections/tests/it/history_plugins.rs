//! Packages of plugins and instances in a history.

use signalbox_domain::{
    fleet::{
        Direction, InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, MappingChanges,
        MappingSpec, NewInstance, NewPackage, PluginClass, PluginInstance, PluginInstanceCommand,
        PluginPackage, PluginPackageCommand, PluginRef,
    },
    kernel::MappingId,
};

use crate::world::{OWNER, Writer, digest};

/// A package, an instance of its plugin that is mapped, reported and changed, and the end of some of them.
pub(crate) async fn plugins(writer: &Writer, number: i64) {
    let (package, instance) = (writer.clock.new_id(), writer.clock.new_id());
    writer.run::<PluginPackage>(package, PluginPackageCommand::Install(new_package(number))).await;
    let mappings: Vec<_> = (0..3)
        .map(|channel| (MappingId(writer.clock.new_id()), mapping(&format!("\\channel \"{channel}\""))))
        .collect();
    let (first, second) = (mappings[0].0, mappings[1].0);
    let spec = InstanceSpec { name: format!("i{number}"), demo_mode: true, enabled: true, config: None };
    let plugin = PluginRef { id: class_id(number), is_built_in: false };
    let new = NewInstance { owner: OWNER, plugin, spec };
    writer.run::<PluginInstance>(instance, PluginInstanceCommand::Create { new, mappings }).await;
    let config = Some(Some(InstanceConfig::Sealed("v1.key.{}".to_owned())));
    let changes = InstanceChanges { enabled: Some(false), config, ..Default::default() };
    writer.run::<PluginInstance>(instance, PluginInstanceCommand::Change(changes)).await;
    let changes = MappingChanges { unit: Some("K".to_owned()), ..Default::default() };
    let change = PluginInstanceCommand::ChangeMapping { mapping: first, changes };
    writer.run::<PluginInstance>(instance, change).await;
    writer.run::<PluginInstance>(instance, PluginInstanceCommand::RemoveMapping { mapping: second }).await;
    let report = PluginInstanceCommand::Report { status: InstanceStatus::Error, error: Some("gone".into()) };
    writer.run::<PluginInstance>(instance, report).await;
    if number % 2 == 0 {
        writer.run::<PluginPackage>(package, PluginPackageCommand::Uninstall).await;
        writer.run::<PluginInstance>(instance, PluginInstanceCommand::Delete).await;
    }
}

fn class_id(number: i64) -> String {
    format!("class-{number}")
}

fn new_package(number: i64) -> NewPackage {
    let class = PluginClass {
        id: class_id(number),
        name: "Weather".to_owned(),
        version: "1".to_owned(),
        vendor: String::new(),
        description: String::new(),
        url: String::new(),
        config_schema: "{}".to_owned(),
        channels: Vec::new(),
    };
    NewPackage {
        owner: OWNER,
        name: format!("package-{number}"),
        version: "1".to_owned(),
        file_name: "w.whl".to_owned(),
        size: 1,
        sha256: digest(number as u8),
        classes: vec![class],
    }
}

fn mapping(channel_id: &str) -> MappingSpec {
    MappingSpec {
        channel_id: channel_id.to_owned(),
        channel_name: "Temperature".to_owned(),
        direction: Direction::Input,
        unit: "°C".to_owned(),
        event: None,
    }
}
