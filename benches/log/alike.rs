//! The same resources of two systems, byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use reqwest::{Method, StatusCode, header::HeaderValue};
use serde_json::Value;

use crate::{
    report,
    system::{Api, Exchange},
};

/// Rows of a page.
const PAGE: usize = 100;
/// Pages that are looked at, all over a list.
const PAGES: usize = 5;

/// A list, the field that names its items, and what is asked of each of them.
const LISTS: [(&str, &str, &[&str]); 15] = [
    ("/api/agents", "id", &["/api/agents/{}"]),
    ("/api/jobs", "id", &["/api/jobs/{}"]),
    ("/api/transfers", "id", &["/api/transfers/{}"]),
    ("/api/v1/users", "public_id", &["/api/v1/users/{}"]),
    ("/api/v1/events", "public_id", &["/api/v1/events/{}"]),
    ("/api/v1/datapoints", "public_id", &["/api/v1/datapoints/{}"]),
    ("/api/v1/experiments", "public_id", &["/api/v1/experiments/{}", "/api/v1/experiments/{}/export/csv"]),
    ("/api/v1/dashboards", "public_id", &["/api/v1/dashboards/{}"]),
    ("/api/v1/logging", "public_id", &["/api/v1/logging/{}"]),
    ("/api/v1/rules", "public_id", &["/api/v1/rules/{}"]),
    ("/api/v1/webhooks", "public_id", &["/api/v1/webhooks/{}", "/api/v1/webhooks/{}/deliveries"]),
    ("/api/v1/plugins", "public_id", &["/api/v1/plugins/{}", "/api/v1/plugins/{}/channels"]),
    ("/api/v1/ota", "public_id", &["/api/v1/ota/{}"]),
    ("/api/v1/log", "position", &["/api/v1/log/{}"]),
    ("/api/v1/jobs", "id", &["/api/v1/jobs/{}"]),
];
/// Lists that reads do not change.
const WHOLE: [&str; 8] = [
    "/api/tokens",
    "/api/v1/tokens",
    "/api/v1/datapoints/latest",
    "/api/v1/plugins/available",
    "/api/transfers?limit=500&offset=1000",
    "/api/v1/events?page_size=100",
    "/api/v1/rules?page_size=100",
    "/api/v1/jobs/stats/overview",
];

/// Paths of resources of all kinds, in turn of each kind: its kind and the path.
pub async fn sample(api: &Api, count: usize) -> anyhow::Result<Vec<(String, String)>> {
    let mut kinds = BTreeMap::<String, Vec<String>>::new();
    for (list, field, templates) in LISTS {
        let ids = ids(api, list, field).await?;
        ensure!(!ids.is_empty(), "{list} is empty");
        for template in templates {
            let paths = ids.iter().map(|id| template.replace("{}", id)).collect();
            kinds.insert((*template).to_owned(), paths);
        }
    }
    for (name, paths) in [deliveries(api).await?, streams(api, &kinds["/api/v1/log/{}"]).await?].concat() {
        kinds.insert(name, paths);
    }
    kinds.insert("lists".to_owned(), WHOLE.map(str::to_owned).into());
    let most = kinds.values().map(Vec::len).max().unwrap_or_default();
    let turns = (0..most).flat_map(|nth| {
        kinds.iter().filter_map(move |(kind, paths)| Some((kind.clone(), paths.get(nth)?.clone())))
    });
    Ok(turns.take(count).collect())
}

/// Ids from all over a list.
async fn ids(api: &Api, list: &str, field: &str) -> anyhow::Result<Vec<String>> {
    if list == "/api/v1/log" {
        let newest = items(api.get("/api/v1/log?limit=1").await?);
        let head = newest.first().and_then(|event| event["position"].as_u64()).context("no log")?;
        let all = (PAGE * PAGES) as u64;
        return Ok((0..all).map(|nth| (head * (2 * nth + 1) / (2 * all)).max(1).to_string()).collect());
    }
    let is_bare = matches!(list, "/api/agents" | "/api/jobs" | "/api/transfers");
    let page = |number: usize| {
        if is_bare {
            format!("{list}?limit={PAGE}&offset={}", number * PAGE)
        } else {
            format!("{list}?page_size={PAGE}&page={}", number + 1)
        }
    };
    let mut found = BTreeSet::new();
    let first = api.exchange(Method::GET, &page(0), None).await?;
    let total = first.headers.get("x-total-count").and_then(|value| value.to_str().ok()?.parse().ok());
    let first: Value = serde_json::from_slice(&first.bytes)?;
    let total = total.or(first["total"].as_u64()).unwrap_or_default() as usize;
    for number in 0..PAGES {
        let number = total / PAGE * number / PAGES;
        for item in items(api.get(&page(number)).await?) {
            let id = &item[field];
            found.insert(id.as_str().map_or_else(|| id.to_string(), str::to_owned));
        }
    }
    Ok(found.into_iter().collect())
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Array(items) => items,
        Value::Object(mut envelope) => match envelope.remove("data") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

async fn deliveries(api: &Api) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let mut paths = Vec::new();
    for webhook in ids(api, "/api/v1/webhooks", "public_id").await? {
        let list = format!("/api/v1/webhooks/{webhook}/deliveries");
        paths.extend(ids(api, &list, "public_id").await?.into_iter().map(|id| format!("{list}/{id}")));
    }
    Ok(vec![("/api/v1/webhooks/{}/deliveries/{}".to_owned(), paths)])
}

/// Streams of some events as they were when these happened, and what the same causes led to.
async fn streams(api: &Api, events: &[String]) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let (mut streams, mut correlations) = (Vec::new(), BTreeSet::new());
    for path in events.iter().step_by(events.len().div_ceil(PAGE)) {
        let event = api.get(path).await?;
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let (kind, id, position) = (text("stream_type"), text("stream_id"), &event["position"]);
        streams.push(format!("/api/v1/log/streams/{kind}/{id}?at={position}"));
        correlations.insert(format!("/api/v1/log/correlations/{}", text("correlation")));
    }
    Ok(vec![
        ("/api/v1/log/streams/{}/{}?at=".to_owned(), streams),
        ("/api/v1/log/correlations/{}".to_owned(), correlations.into_iter().collect()),
    ])
}

/// Status, version and body of an answer. How far the log is, which stands beside the events of a stream, is left out: each
/// login makes it longer.
fn shown(answer: &Exchange) -> (StatusCode, Option<HeaderValue>, String) {
    let mut body = String::from_utf8_lossy(&answer.bytes).into_owned();
    if let Some((before, head)) = body.rsplit_once(",\"head\":")
        && head.trim_end_matches('}').bytes().all(|byte| byte.is_ascii_digit())
    {
        body = before.to_owned();
    }
    (answer.status, answer.headers.get("etag").cloned(), body)
}

/// Asks both systems for a sample of `count` resources; fails at the first difference of status, version or body.
pub async fn compare(here: &Api, there: &Api, count: usize) -> anyhow::Result<()> {
    let mut kinds = BTreeMap::<String, usize>::new();
    for (kind, path) in sample(here, count).await? {
        let (ours, theirs) =
            (here.exchange(Method::GET, &path, None).await?, there.exchange(Method::GET, &path, None).await?);
        ensure!(ours.status.is_success(), "GET {path} was answered with {}", ours.status);
        let (ours, theirs) = (shown(&ours), shown(&theirs));
        ensure!(ours == theirs, "GET {path}: {ours:?} here, {theirs:?} there");
        *kinds.entry(kind).or_default() += 1;
    }
    let compared: usize = kinds.values().sum();
    ensure!(compared == count, "there are only {compared} resources to compare");
    report::title("log: GET of the same resources in both systems: status, ETag and body are equal");
    for (kind, count) in kinds {
        report::figure(&kind, count as f64, "");
    }
    report::figure("in all", compared as f64, "equal");
    Ok(())
}
