use serde::{Deserialize, Serialize};

use crate::{
    automation::{AlarmChanges, AlarmSpec, AlarmTerms, EventType, NotificationChanges, NotificationSpec},
    kernel::{ChannelId, Rejection, present, required_text},
};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;
/// Longest cooldown between two firings, in seconds: a year.
pub const MAX_COOLDOWN: u32 = 366 * 24 * 3600;
/// How far apart two values may be that count as equal.
const TOLERANCE: f64 = 1e-9;

/// How a value is compared with the thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Greater than the threshold.
    Gt,
    /// Less than the threshold.
    Lt,
    /// Greater than the threshold, or the same.
    Gte,
    /// Less than the threshold, or the same.
    Lte,
    /// The threshold, within 1e-9.
    Eq,
    /// From the threshold to the high threshold, both included.
    Between,
    /// Below the threshold or above the high threshold.
    NotBetween,
}

/// When a value matters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// How it is compared.
    pub operator: Operator,
    /// Threshold; the lower bound of a range.
    pub threshold: f64,
    /// The upper bound of a range.
    pub threshold_high: Option<f64>,
}

/// The effect of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// It writes a log entry.
    Log,
    /// Notifies webhook subscriptions.
    Webhook {
        /// As which event.
        event_type: EventType,
    },
}

/// The kind of a [`RuleAction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionType {
    /// A log entry.
    Log,
    /// A webhook event.
    Webhook,
}

/// The settings of a rule that an admin chooses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleSpec {
    /// Unique name, 1–255 characters.
    pub name: String,
    /// The channel whose values it watches.
    pub channel: ChannelId,
    /// When a value matters.
    #[serde(flatten)]
    pub condition: Condition,
    pub action: RuleAction,
    /// Least time between two firings, in seconds; with 0 it fires on every value that matters.
    pub cooldown_seconds: u32,
    /// Whether it watches at all.
    pub enabled: bool,
    /// Makes the condition a state. The action runs when it starts to fire, instead of on each value that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<AlarmSpec>,
    #[serde(default, skip_serializing_if = "NotificationSpec::is_empty")]
    pub notify: NotificationSpec,
}

/// Changes of a rule; absent fields stay unchanged, `Some(None)` clears.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleChanges {
    /// New name.
    pub name: Option<String>,
    /// Another channel.
    pub channel: Option<ChannelId>,
    /// Another comparison.
    pub operator: Option<Operator>,
    /// New threshold.
    pub threshold: Option<f64>,
    /// New upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub threshold_high: Option<Option<f64>>,
    /// Another kind of action.
    pub action_type: Option<ActionType>,
    /// Another webhook event.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub webhook_event_type: Option<Option<EventType>>,
    /// Minimum time between two firings, in seconds.
    pub cooldown_seconds: Option<u32>,
    /// Whether it watches.
    pub enabled: Option<bool>,
    #[serde(default)]
    pub alarm: AlarmChanges,
    #[serde(default)]
    pub notify: NotificationChanges,
}

impl Operator {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gt => "gt",
            Self::Lt => "lt",
            Self::Gte => "gte",
            Self::Lte => "lte",
            Self::Eq => "eq",
            Self::Between => "between",
            Self::NotBetween => "not_between",
        }
    }

    /// The operator that clients call `word`.
    pub fn parse(word: &str) -> Option<Self> {
        use Operator::{Between, Eq, Gt, Gte, Lt, Lte, NotBetween};
        [Gt, Lt, Gte, Lte, Eq, Between, NotBetween].into_iter().find(|known| known.as_str() == word)
    }
}

impl Condition {
    /// Whether the condition holds for `value`. A range without an upper bound never holds.
    pub fn holds(&self, value: f64) -> bool {
        let (low, high) = (self.threshold, self.threshold_high);
        match self.operator {
            Operator::Gt => value > low,
            Operator::Lt => value < low,
            Operator::Gte => value >= low,
            Operator::Lte => value <= low,
            Operator::Eq => (value - low).abs() <= TOLERANCE,
            Operator::Between => high.is_some_and(|high| low <= value && value <= high),
            Operator::NotBetween => high.is_some_and(|high| value < low || value > high),
        }
    }

    fn validate(&self) -> Result<(), Rejection> {
        for (field, value) in [("threshold", Some(self.threshold)), ("threshold_high", self.threshold_high)] {
            if value.is_some_and(|value| !value.is_finite()) {
                return Err(Rejection::field(field, "must be a finite number"));
            }
        }
        let is_range = matches!(self.operator, Operator::Between | Operator::NotBetween);
        match self.threshold_high {
            None if is_range => {
                let fault = format!("is required for operator {}", self.operator.as_str());
                Err(Rejection::field("threshold_high", fault))
            }
            Some(high) if high < self.threshold => {
                Err(Rejection::field("threshold_high", "must not be less than threshold"))
            }
            _ => Ok(()),
        }
    }
}

impl RuleAction {
    /// Its kind.
    pub fn kind(self) -> ActionType {
        match self {
            Self::Log => ActionType::Log,
            Self::Webhook { .. } => ActionType::Webhook,
        }
    }

    /// The webhook event, if it is one.
    pub fn event_type(self) -> Option<EventType> {
        match self {
            Self::Log => None,
            Self::Webhook { event_type } => Some(event_type),
        }
    }

    /// This action, if a rule may be given it. Rules that were stored before may publish other types.
    ///
    /// # Errors
    /// A [`Rejection`] when only other parts of the service publish its type.
    pub fn permitted(self) -> Result<Self, Rejection> {
        match self {
            Self::Webhook { event_type } if !EventType::OF_RULES.contains(&event_type) => {
                let words = EventType::OF_RULES.map(EventType::as_str).join(", ");
                Err(Rejection::field("webhook_event_type", format!("must be one of {words}")))
            }
            action => Ok(action),
        }
    }

    /// The action of `kind`; a webhook publishes `event_type`, and a log entry has no use for one.
    ///
    /// # Errors
    /// A [`Rejection`] when a webhook lacks its event, or a log entry is given one that no rule publishes.
    pub fn of(kind: ActionType, event_type: Option<EventType>) -> Result<Self, Rejection> {
        match (kind, event_type) {
            (ActionType::Log, Some(event_type)) => {
                Self::Webhook { event_type }.permitted().map(|_| Self::Log)
            }
            (ActionType::Log, None) => Ok(Self::Log),
            (ActionType::Webhook, Some(event_type)) => Ok(Self::Webhook { event_type }),
            (ActionType::Webhook, None) => {
                Err(Rejection::field("webhook_event_type", "is required for action_type webhook"))
            }
        }
    }
}

impl ActionType {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Webhook => "webhook",
        }
    }
}

impl RuleSpec {
    /// This rule after `changes`.
    ///
    /// # Errors
    /// A [`Rejection`] when the changed specification is invalid.
    pub fn with(&self, changes: RuleChanges) -> Result<Self, Rejection> {
        let kind = changes.action_type.unwrap_or(self.action.kind());
        // A log entry keeps no type, and that of an older rule need not be one that is permitted now.
        let kept = if kind == ActionType::Log { None } else { self.action.event_type() };
        let event_type = changes.webhook_event_type.unwrap_or(kept);
        let condition = Condition {
            operator: changes.operator.unwrap_or(self.condition.operator),
            threshold: changes.threshold.unwrap_or(self.condition.threshold),
            threshold_high: changes.threshold_high.unwrap_or(self.condition.threshold_high),
        };
        let alarm = changes.alarm.with(&changes.notify).apply(self.alarm)?;
        // With an alarm its notifications go.
        let notified_before = alarm.map(|_| self.notify.clone()).unwrap_or_default();
        let changed = Self {
            name: changes.name.unwrap_or_else(|| self.name.clone()),
            channel: changes.channel.unwrap_or(self.channel),
            condition,
            action: match RuleAction::of(kind, event_type)? {
                action if action == self.action => action,
                action => action.permitted()?,
            },
            cooldown_seconds: changes.cooldown_seconds.unwrap_or(self.cooldown_seconds),
            enabled: changes.enabled.unwrap_or(self.enabled),
            alarm,
            notify: changes.notify.apply(notified_before),
        };
        changed.validate()
    }

    /// All that its alarm is judged by; `None` if it has none, or is disabled.
    pub fn alarm_terms(&self) -> Option<AlarmTerms> {
        let alarm = self.alarm.filter(|_| self.enabled)?;
        Some(AlarmTerms { channel: self.channel, condition: self.condition, alarm })
    }

    /// This rule, with its name trimmed.
    ///
    /// # Errors
    /// A [`Rejection`] that names the fault.
    pub fn validate(self) -> Result<Self, Rejection> {
        let name = required_text("name", &self.name, MAX_NAME)?;
        self.condition.validate()?;
        if self.cooldown_seconds > MAX_COOLDOWN {
            return Err(Rejection::field("cooldown_seconds", format!("must be at most {MAX_COOLDOWN}")));
        }
        self.alarm.map_or(Ok(()), |alarm| alarm.validate(&self.condition))?;
        let notify = self.notify.clone().validate(self.alarm.is_some())?;
        Ok(Self { name, notify, ..self })
    }
}
