//! The alert rules for Prometheus and the dashboard for Grafana in `deploy/`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use signalbox_database::report_fault;
use tokio::process::Command;

use crate::harness::{
    Behaviour, Prometheus, Receiver, World, eventually, eventually_some, promtool, seconds,
};

const RULES: &str = "deploy/prometheus/signalbox.rules.yml";
const TESTS_OF_RULES: &str = "deploy/prometheus/signalbox.rules.test.yml";
const DASHBOARD: &str = "deploy/grafana/signalbox.json";
/// Labels that Prometheus adds to what it scrapes.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];
/// Labels by which channels ask to be watched.
const OF_CHANNELS: [&str; 2] = ["watch", "watch_changes"];

fn place(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(place(file)).unwrap()
}

/// A query and where it stands.
struct Query {
    at: String,
    text: String,
}

/// The queries of the dashboard, which Grafana's library has read.
async fn dashboard() -> Vec<Value> {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", place(".tools/clients")).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.arg(place("tests/grafana/check_dashboard.py")).arg(place(DASHBOARD)).output().await;
    let output = output.expect("tools/bootstrap tests installs what the check needs");
    assert!(output.status.success(), "{DASHBOARD}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn alert_rules_pass_their_own_tests() {
    promtool::check_rules(&place(RULES)).await.unwrap_or_else(|report| panic!("{report}"));
    promtool::test_file(&place(TESTS_OF_RULES)).await.unwrap_or_else(|report| panic!("{report}"));
}

/// Whether the tests of the rules have a case in which an alert fires, and one in which it does not, by alert.
fn cases(tests: &str) -> BTreeMap<String, [bool; 2]> {
    let mut cases = BTreeMap::<_, [bool; 2]>::new();
    let mut alert = String::new();
    for line in tests.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("alertname: ") {
            alert = name.to_owned();
        } else if let Some(expected) = line.strip_prefix("exp_alerts:") {
            let [fires, rests] = cases.entry(alert.clone()).or_default();
            if expected.trim() == "[]" { *rests = true } else { *fires = true }
        }
    }
    cases
}

#[test]
fn every_alert_has_a_case_that_fires_and_one_that_does_not() {
    let rules = read(RULES);
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let expected: BTreeMap<_, _> = alerts.map(|alert| (alert.to_owned(), [true; 2])).collect();
    assert!(expected.len() > 10);
    assert_eq!(cases(&read(TESTS_OF_RULES)), expected);
}

/// The names of metrics in a query, and of the labels that it selects or groups by.
fn names(query: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let words = regex(r"\b(?:signalbox_[a-z_]+|up)\b");
    let metrics = words.find_iter(query).map(|found| found.as_str().to_owned()).collect();
    let matchers = regex(r#"([a-z_]+)\s*(?:=~|!~|!=|=)\s*""#);
    let groups = regex(r"\b(?:by|on) \(([^)]*)\)");
    let matched = matchers.captures_iter(query).map(|found| found[1].to_owned());
    let grouped = groups
        .captures_iter(query)
        .flat_map(|found| found[1].split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>());
    (metrics, matched.chain(grouped).filter(|name| !name.is_empty()).collect())
}

fn regex(pattern: &str) -> regex::Regex {
    regex::Regex::new(pattern).unwrap()
}

/// The queries of the rules, as `prometheus` has loaded them, and that it evaluates them.
async fn queries_of_rules(prometheus: &Prometheus) -> Vec<Query> {
    let rules = eventually_some(seconds(60), async || {
        let answer = prometheus.get("rules", &[]).await;
        let groups = answer["data"]["groups"].as_array()?.clone();
        let rules: Vec<_> =
            groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        // Those over remote read are refused until the gateway answers.
        rules.iter().all(|rule| rule["health"] == "ok").then_some(rules)
    });
    let query = |rule: &Value| Query {
        at: rule["name"].as_str().unwrap().to_owned(),
        text: rule["query"].as_str().unwrap().to_owned(),
    };
    rules.await.iter().map(query).collect()
}

/// Has every metric of the program at least one series.
async fn be_busy(world: &World) {
    let receiver = Receiver::with(None, Behaviour::Answer(500)).await;
    let webhook = json!({"url": receiver.url(), "events": ["sensor.reading"]});
    world.admin.post("/api/v1/webhooks", webhook).await.expect(201);
    let labels = json!({"watch": "true", "watch_changes": "true"});
    let event = json!({"name": "boiler", "type": "sensor", "unit": "°C", "labels": labels});
    let event = world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone();
    let value = json!({"event_public_id": event, "value": 1});
    world.admin.post("/api/v1/datapoints", value).await.expect(201);
    report_fault(&world.servers.pool, "disk.elsewhere", "it is full").await.unwrap();
}

/// A Prometheus that scrapes the service, reads its values and evaluates the rules.
async fn prometheus(world: &World) -> Prometheus {
    let gateway = world.at_one_gateway();
    let (url, token) = (gateway.url(""), gateway.token.clone().unwrap());
    let target = url.trim_start_matches("http://").trim_end_matches('/');
    let settings = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [{rules:?}]
scrape_configs:
  - job_name: signalbox
    authorization: {{ credentials: {token:?} }}
    static_configs: [{{ targets: [{target:?}] }}]
remote_read:
  - url: {url:?}
    read_recent: true
    authorization: {{ credentials: {token:?} }}
",
        rules = place(RULES),
        url = gateway.url("/api/v1/prometheus/read"),
    );
    Prometheus::start("", &settings).await
}

#[tokio::test]
async fn every_metric_of_rules_and_dashboard_is_exported() {
    let world = World::start().await;
    be_busy(&world).await;
    let prometheus = prometheus(&world).await;
    let mut queries = queries_of_rules(&prometheus).await;
    assert!(queries.len() > 10);
    let mut variables = BTreeSet::new();
    for entry in dashboard().await {
        let at = format!("{DASHBOARD}, {}", entry["at"].as_str().unwrap());
        if let Some(text) = entry["expr"].as_str() {
            queries.push(Query { at, text: text.to_owned() });
        } else {
            // label_values(metric, label)
            let text = entry["variable"].as_str().unwrap();
            let (metric, label) =
                text.strip_prefix("label_values(").and_then(|rest| rest.split_once(", ")).unwrap();
            let label = label.trim_end_matches(')');
            variables.insert(entry["at"].as_str().unwrap().to_owned());
            queries.push(Query { at, text: format!("count by ({label}) ({metric})") });
        }
    }
    let text = world.admin.get("/metrics").await.text();
    let mut exported: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .map(str::to_owned)
        .collect();
    let own = exported.len();
    // By Prometheus itself, and by remote read.
    exported.extend(["up", "signalbox_value"].map(str::to_owned));
    let mut used = BTreeSet::new();
    for Query { at, text } in &queries {
        let text = regex(r"\$(\w+)").replace_all(text, |found: &regex::Captures<'_>| match &found[1] {
            "__rate_interval" => "1m",
            name => {
                assert!(variables.contains(&format!("${name}")), "{at}: {text} names an unknown variable");
                ".+"
            }
        });
        let text = text.into_owned();
        let asked = [("query", text.clone())];
        eventually(seconds(30), async || prometheus.get("query", &asked).await["status"] == "success").await;
        let (metrics, labels) = names(&text);
        assert!(!metrics.is_empty(), "{at}: {text} names no metric");
        let mut known: BTreeSet<_> = ["class", "le"].map(str::to_owned).into();
        known.extend(OF_PROMETHEUS.map(str::to_owned));
        for metric in &metrics {
            let is_exported = exported.iter().any(|name| metric.starts_with(name));
            assert!(is_exported, "{at}: {text} asks for {metric}, which is not exported");
            let found = eventually_some(seconds(30), async || {
                let series = prometheus.get("series", &[("match[]", metric.clone())]).await;
                Some(series["data"].as_array()?.clone()).filter(|series| !series.is_empty())
            });
            let series = found.await;
            known.extend(series.iter().flat_map(|one| one.as_object().unwrap().keys().cloned()));
        }
        if metrics.contains("signalbox_value") {
            assert!(OF_CHANNELS.iter().all(|label| known.contains(*label)));
        }
        let unknown: Vec<_> = labels.difference(&known).collect();
        assert!(unknown.is_empty(), "{at}: {text} asks for the labels {unknown:?}, which no series has");
        used.extend(metrics);
    }
    // Nothing that the program exports is missing from the dashboard.
    let is_used = |name: &&String| used.iter().any(|metric: &String| metric.starts_with(name.as_str()));
    let unused: Vec<_> = exported[..own].iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "{DASHBOARD} does not show {unused:?}");
    world.finish().await;
}
