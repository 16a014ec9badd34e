//! The stand-in gateway's transports: WebSocket and long polling over one mailbox.

use crate::gateway::{Gate, Inner, Shared, error};
use axum::{
    Json,
    extract::{
        Query, State, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc, time::Duration};

const CAPABILITIES: [&str; 4] = ["ack", "tree", "checksum", "resume"];

pub async fn websocket(State(shared): Gate, upgrade: WebSocketUpgrade) -> Response {
    if shared.lock().faults.refuses_websockets {
        return error(StatusCode::BAD_GATEWAY, "no upgrades here");
    }
    upgrade.on_upgrade(async move |socket| {
        shared.change(|inner| {
            inner.websockets += 1;
            // Messages that the last connection did not acknowledge are delivered again.
            inner.mail.iter_mut().filter(|mail| !mail.acknowledged).for_each(|mail| mail.delivered = false);
        });
        converse(&shared, socket).await;
        shared.change(|inner| inner.websockets -= 1);
    })
}

async fn converse(shared: &Arc<Shared>, mut socket: WebSocket) {
    let mut is_first = true;
    loop {
        tokio::select! {
            mail = shared.until(next_mail) => {
                if socket.send(Message::text(mail.to_string())).await.is_err() {
                    return;
                }
            }
            frame = socket.recv() => match frame {
                Some(Ok(Message::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).unwrap();
                    if hangs_up(shared, &message) {
                        return;
                    }
                    shared.change(|inner| receive(inner, "websocket", message, is_first));
                    is_first = false;
                    if shared.lock().faults.falls_silent {
                        return std::future::pending().await;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            }
        }
    }
}

fn hangs_up(shared: &Shared, message: &Value) -> bool {
    let faults = &mut shared.lock().faults;
    match &mut faults.hangs_up_on {
        Some((kind, times)) if *times > 0 && message["type"] == *kind => {
            *times -= 1;
            true
        }
        _ => false,
    }
}

fn next_mail(inner: &mut Inner) -> Option<Value> {
    let mail = inner.mail.iter_mut().find(|mail| !mail.delivered)?;
    mail.delivered = true;
    let mut envelope = mail.message.clone();
    envelope["id"] = json!(mail.id);
    Some(envelope)
}

fn receive(inner: &mut Inner, transport: &'static str, message: Value, is_first: bool) {
    let kind = message["type"].as_str().unwrap_or_default().to_owned();
    if is_first != (kind == "agent_info") {
        inner.violations.push(format!("agent_info is not the first message: {message}"));
    }
    check(inner, &kind, &message["data"], transport);
    if kind == "ack" {
        acknowledge(inner, &message["data"]["message_ids"]);
    }
    inner.received.push((transport, message));
}

fn check(inner: &mut Inner, kind: &str, data: &Value, transport: &str) {
    let id_is_good = data["transfer_id"].as_str().is_some_and(|id| id.parse::<u64>().is_ok());
    let is_good = match kind {
        "agent_info" => info_is_good(data, transport),
        "heartbeat" => data["timestamp"].as_str().is_some_and(|time| time.contains('T')),
        "transfer_progress" => {
            let share = data["progress"].as_f64().unwrap_or(-1.0);
            id_is_good
                && (0.0..=1.0).contains(&share)
                && data["current_bytes"].as_u64() <= data["total_bytes"].as_u64()
        }
        "transfer_complete" => {
            let numbers = ["duration", "files", "bytes", "attempt"].iter().all(|key| data[key].is_u64());
            id_is_good && numbers && data["sha256"].as_str().is_some_and(|digest| digest.len() == 64)
        }
        "transfer_error" => {
            id_is_good
                && data["error"].is_string()
                && data["retryable"].is_boolean()
                && data["attempt"].is_u64()
        }
        "connection_test_response" => true,
        "ack" => transport == "websocket" && data["message_ids"].is_array(),
        _ => false,
    };
    if !is_good {
        inner.violations.push(format!("not in the protocol: {kind} {data}"));
    }
}

fn info_is_good(data: &Value, transport: &str) -> bool {
    let texts = ["hostname", "os_name", "os_version", "arch", "ip_address", "version"];
    texts.iter().all(|key| data[key].is_string())
        && ["num_cpu", "total_mem_mb"].iter().all(|key| data[key].is_u64())
        && data["transport_mode"] == transport
        && data["capabilities"] == json!(CAPABILITIES)
        && data["active_transfers"].is_array()
}

fn acknowledge(inner: &mut Inner, ids: &Value) {
    for id in ids.as_array().into_iter().flatten() {
        let mail = inner.mail.iter_mut().find(|mail| json!(mail.id) == *id && mail.delivered);
        match mail {
            Some(mail) => mail.acknowledged = true,
            None => inner.violations.push(format!("acknowledged without delivery: {id}")),
        }
    }
}

pub async fn connect(State(shared): Gate, Json(body): Json<Value>) -> Response {
    let info = body["system_info"].clone();
    shared.change(|inner| {
        inner.mail.iter_mut().filter(|mail| !mail.acknowledged).for_each(|mail| mail.delivered = false);
        receive(inner, "polling", json!({ "type": "agent_info", "data": info }), true);
        if body["transport"] != "polling" {
            inner.violations.push("connect without its transport".to_owned());
        }
    });
    Json(json!({ "status": "connected", "agent_id": 1, "mode": "polling" })).into_response()
}

pub async fn poll(State(shared): Gate, Query(query): Query<HashMap<String, String>>) -> Response {
    let Some(seconds @ 1..=120) = query.get("timeout").and_then(|text| text.parse::<u64>().ok()) else {
        shared.change(|inner| inner.violations.push(format!("poll {query:?}")));
        return error(StatusCode::BAD_REQUEST, "timeout");
    };
    match tokio::time::timeout(Duration::from_secs(seconds), shared.until(next_mail)).await {
        Err(_) => StatusCode::NO_CONTENT.into_response(),
        Ok(mut mail) => {
            let id = mail["id"].take();
            mail.as_object_mut().unwrap().remove("id");
            Json(json!([{ "id": id, "message": mail }])).into_response()
        }
    }
}

pub async fn ack(State(shared): Gate, Json(body): Json<Value>) -> Json<Value> {
    shared.change(|inner| acknowledge(inner, &body["message_ids"]));
    Json(json!({ "status": "ok" }))
}

pub async fn messages(State(shared): Gate, Json(message): Json<Value>) -> Json<Value> {
    shared.change(|inner| receive(inner, "polling", message, false));
    Json(json!({ "status": "ok" }))
}
