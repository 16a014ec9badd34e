//! Resources of all kinds, made over HTTP as people make them.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    load,
    monitoring::points,
    system::{AgentAccount, Api},
    webhooks::{EVENTS, experiment, public_id, sink::Sink, subscribe},
};

/// Of most kinds.
const EACH: usize = 25;
const SUBSCRIPTIONS: usize = 3;
const CONNECTIONS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The resources that the load uses.
pub struct Subjects {
    /// Two agents that never come.
    pub agents: [AgentAccount; 2],
    /// Events, in the words of the specification.
    pub events: Vec<String>,
    /// Subscriptions to experiments.
    pub webhooks: Vec<String>,
}

/// Makes them.
pub async fn plant(api: &Api, sink: &Sink) -> anyhow::Result<Subjects> {
    let mut agents = Vec::new();
    for number in 0..EACH {
        agents.push(api.add_agent(&format!("machine {number}")).await?);
    }
    for number in 0..EACH {
        let (source, destination) = (&agents[number], &agents[(number + 1) % EACH]);
        let job = json!({"name": format!("results of {number}"), "source_agent_id": source.number,
            "destination_agent_id": destination.number, "source_path": "results/", "destination_path": "incoming/",
            "schedule": "0 30 2 29 2 *", "timezone": "Europe/Berlin", "description": "seldom"});
        api.post("/api/jobs", &job).await?;
        let user = json!({"email": format!("user{number}@example.org"), "username": format!("user{number}"),
            "password": "long enough, and no word", "role": "operator"});
        api.post("/api/v1/users", &user).await?;
        api.post("/api/v1/tokens", &json!({"name": format!("token {number}")})).await?;
        let entry =
            json!({"content": format!("valve {number} was oiled"), "source": "hall 2", "type": "info"});
        api.post("/api/v1/logging", &entry).await?;
        api.post("/api/v1/ota", &json!({"version": format!("1.0.{number}"), "changelog": "better"})).await?;
        let plugin = json!({"plugin_id": "simulated", "instance_name": format!("press {number}")});
        api.post("/api/v1/plugins", &plugin).await?;
    }
    let events = points::add_events(api, 2 * EACH).await?;
    for (number, event) in events.iter().take(EACH).enumerate() {
        rule_and_dashboard(api, number, event).await?;
    }
    let mut webhooks = Vec::new();
    for number in 0..SUBSCRIPTIONS {
        webhooks.push(subscribe(api, &sink.url(&number.to_string()), &EVENTS).await?);
    }
    for number in 0..EACH {
        experiment(api, number).await?;
    }
    let delivered = timeout(TIMEOUT, sink.until(EACH * EVENTS.len() * SUBSCRIPTIONS)).await;
    delivered.context("not all experiments were delivered in time")??;
    sink.take();
    let agents = [agents.remove(0), agents.remove(0)];
    Ok(Subjects { agents, events, webhooks })
}

async fn rule_and_dashboard(api: &Api, number: usize, event: &str) -> anyhow::Result<()> {
    let rule = json!({"name": format!("hot {number}"), "event_public_id": event, "operator": "gt", "threshold": 20,
        "cooldown_seconds": 3600, "action_type": "log"});
    api.post("/api/v1/rules", &rule).await?;
    let dashboard = json!({"name": format!("hall {number}"), "is_global": number.is_multiple_of(2)});
    let dashboard = public_id(&api.post("/api/v1/dashboards", &dashboard).await?)?;
    for place in 0..3 {
        let widget = json!({"widget_type": "gauge", "title": format!("gauge {place}"), "event_public_id": event,
            "x": place, "y": 0, "w": 1, "h": 1});
        api.post(&format!("/api/v1/dashboards/{dashboard}/widgets"), &widget).await?;
    }
    Ok(())
}

/// Records `count` datapoints.
pub fn record(api: &Api, subjects: &Subjects, count: usize) -> anyhow::Result<()> {
    let requests = points::requests(api, &subjects.events, count);
    load::send_all(api.address, CONNECTIONS, &requests, 201)?;
    Ok(())
}

/// The integer in an answer.
pub fn number(made: &Value) -> anyhow::Result<i64> {
    made["id"].as_i64().context("no id")
}
