//! Rules that watch the values of channels, and webhooks that are told of what happens.

mod delivery;
mod event_type;
mod health;
mod reading;
mod reported;
mod rule;
mod webhook;

pub use delivery::{
    AttemptResult, Begun, CLAIM_SECONDS, CallbackDelivery, Consignment, ConsignmentCommand, ConsignmentEvent,
    Ended, MAX_ATTEMPTS, NewDelivery, Requeued, Verdict,
};
pub use event_type::EventType;
pub use health::{Health, HealthCommand, HealthEvent, HealthReport, HealthStatus};
pub use reading::{DatapointPlace, Reading};
pub use reported::{REPORT_INTERVAL, ReadingCommand, ReadingEvent, ReportedReading};
pub use rule::{
    ActionType, Condition, Firing, History, Judge, NewRule, Operator, Phase, Rule, RuleAction, RuleChanges,
    RuleCommand, RuleEvent, RuleSpec,
};
pub use webhook::{
    NewWebhook, Replay, SecretChange, Webhook, WebhookChanges, WebhookCommand, WebhookEvent, WebhookSpec,
};
