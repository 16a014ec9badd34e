//! Rules that watch the values of channels, and webhooks that publish events to subscribers.

mod alarm;
mod contact;
mod delivery;
mod event_type;
mod health;
mod notification;
mod reading;
mod report_window;
mod reported;
mod rule;
mod webhook;

pub use alarm::{
    Acknowledged, Alarm, AlarmChanges, AlarmCommand, AlarmEvent, AlarmEventKind, AlarmJudge, AlarmMark,
    AlarmMemory, AlarmReason, AlarmSpec, AlarmState, AlarmStep, AlarmTerms, JudgedValue, NewAlarm, OpenAlarm,
    Severity, StepKind, WINDOW_VALUES,
};
pub use contact::{
    CONTACT_IN_USE, ChatFormat, Contact, ContactChanges, ContactCommand, ContactEvent, ContactEventKind,
    ContactKind, ContactSpec, Destination, DestinationChanges, NewContact, SealedAddress, rules_of_contact,
};
pub use delivery::{
    AttemptResult, Begun, CLAIM_SECONDS, CallbackDelivery, DeliveryBatch, DeliveryBatchCommand,
    DeliveryBatchEvent, DeliveryBatchEventKind, DeliveryStatus, Ended, MAX_ATTEMPTS, MAX_POSTPONED,
    MAX_POSTPONEMENT, MIN_POSTPONEMENT, MessageDelivery, NewDelivery, Requeued, RetryPolicy, Verdict,
    fault_class,
};
pub use event_type::EventType;
pub use health::{Health, HealthCommand, HealthEvent, HealthEventKind, HealthReport, HealthStatus};
pub use notification::{
    AlarmLine, GROUP_INTERVAL, Grouping, InvalidQuietHours, LineKind, MESSAGE_INTERVAL, Notice, NoticeKind,
    NotificationChanges, NotificationSpec, QuietHours, SummaryTemplate, SummaryValues, alarm_lines,
    message_id,
};
pub use reading::{DatapointPlace, Reading};
pub use report_window::ReportWindow;
pub use reported::{REPORT_INTERVAL, ReadingCommand, ReadingEvent, ReadingEventKind, ReportedReading};
pub use rule::{
    ActionType, Condition, FiredAlarm, Firing, History, Judge, NewRule, Operator, Phase, Rule, RuleAction,
    RuleChanges, RuleCommand, RuleEvent, RuleEventKind, RuleSpec, Silence,
};
pub use webhook::{
    ChannelSubject, EventSubject, KeyChange, NewWebhook, PreviousKeys, Replay, SecretChange, SigningKey,
    Webhook, WebhookChanges, WebhookCommand, WebhookEvent, WebhookEventKind, WebhookFilters, WebhookSpec,
};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::alarm::limits::*;
    pub use super::contact::{MAX_CONTACT_NAME, MAX_MAIL_ADDRESS};
    pub use super::delivery::MAX_ATTEMPTS as DELIVERY_ATTEMPTS;
    pub use super::notification::{MAX_SUMMARY, limits::*};
    pub use super::rule::limits::*;
    pub use super::webhook::MAX_FILTERED;
}
