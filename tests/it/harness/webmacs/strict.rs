//! The originals' requirements of an answer.

use chrono::DateTime;
use serde::Deserialize;
use serde_json::Value;

/// An event as the controller reads it: none of these may be missing or null, and a type that it does not know ends its
/// start.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    pub public_id: String,
    pub name: String,
    #[serde(rename = "min_value")]
    _min_value: f64,
    #[serde(rename = "max_value")]
    _max_value: f64,
    #[serde(rename = "unit")]
    _unit: String,
    #[serde(rename = "type")]
    pub kind: EventType,
    #[serde(rename = "user_public_id")]
    _user_public_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    Sensor,
    Actuator,
    Range,
    CmdButton,
    CmdOpened,
    CmdClosed,
}

/// A plugin instance as the controller reads it.
#[derive(Debug, Clone, Deserialize)]
pub struct Plugin {
    pub public_id: String,
    pub plugin_id: String,
    pub instance_name: String,
    pub demo_mode: bool,
    pub enabled: bool,
    #[serde(rename = "config_json")]
    _config_json: Option<Value>,
}

/// A channel of a plugin instance as the controller reads it.
#[derive(Debug, Clone, Deserialize)]
pub struct Mapping {
    pub channel_id: String,
    pub event_public_id: Option<String>,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub struct Page<T> {
    #[serde(rename = "page")]
    _page: u64,
    #[serde(rename = "page_size")]
    _page_size: u64,
    pub total: usize,
    pub data: Vec<T>,
}

/// A value as it is read over HTTP, and, without its id, over the socket.
#[derive(Debug, Clone, Deserialize)]
pub struct Datapoint {
    pub public_id: Option<String>,
    pub value: f64,
    pub timestamp: String,
    pub event_public_id: String,
    #[serde(rename = "experiment_public_id")]
    _experiment_public_id: Option<String>,
}

impl Datapoint {
    /// The field that the original would fail to read, if any.
    pub fn fault(&self) -> Option<String> {
        let readable = DateTime::parse_from_rfc3339(&self.timestamp).is_ok();
        let fits = readable && self.value.is_finite() && !self.event_public_id.is_empty();
        (!fits).then(|| format!("a datapoint is {self:?}"))
    }
}

/// `{"status": "success", "message": …}`, which answers writes, with whatever else.
pub fn is_success(answer: &Value) -> bool {
    answer["status"] == "success" && answer["message"].as_str().is_some_and(|text| !text.is_empty())
}

/// The number at the start of a batch's message, up to the first space.
pub fn leading_number(answer: &Value) -> Option<usize> {
    answer["message"].as_str()?.split_once(' ')?.0.parse().ok()
}
