use std::sync::LazyLock;

use signalbox_domain::catalog::Aggregate;

/// Types of resources that clients are notified of. The others, such as login sessions, are shown by no route.
pub(crate) static CHANGED_RESOURCES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let shown = Aggregate::ALL.iter().filter(|aggregate| is_shown(**aggregate));
    let mut words: Vec<_> = shown.map(|aggregate| aggregate.word()).collect();
    words.sort_unstable();
    words
});

/// Whether a route shows the aggregate.
fn is_shown(aggregate: Aggregate) -> bool {
    match aggregate {
        Aggregate::Agent
        | Aggregate::AgentToken
        | Aggregate::Alarm
        | Aggregate::ApiToken
        | Aggregate::Channel
        | Aggregate::Contact
        | Aggregate::Dashboard
        | Aggregate::DeliveryBatch
        | Aggregate::Experiment
        | Aggregate::ExtractionJob
        | Aggregate::Firmware
        | Aggregate::Job
        | Aggregate::LogEntry
        | Aggregate::PluginInstance
        | Aggregate::PluginPackage
        | Aggregate::Rule
        | Aggregate::Transfer
        | Aggregate::User
        | Aggregate::Webhook => true,
        Aggregate::Session | Aggregate::ReportedReading | Aggregate::Health => false,
    }
}
