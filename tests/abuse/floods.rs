//! Messages and attempts to log in, as fast as they are taken.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::Context as _;
use futures::{SinkExt, StreamExt, future::try_join_all};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    scene::{Scene, Target},
    socket::open,
    tally::Tally,
};

const SOCKETS: u64 = 50;
const LOGIN_ADDRESSES: u8 = 8;
const LOGINS_EACH: usize = 4;
/// Between two failed logins on one connection.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long the messages of a description are.
const DESCRIPTION: usize = 8000;
/// Requests that a user may make in a second, and at once.
const USER_RATE: (u64, u64) = (100, 1000);

pub async fn agent_info(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    let flood = async |number: usize| {
        let address = Ipv4Addr::new(127, 0, 14, 1 + number as u8);
        loop {
            let socket = open(address, target.address, "/ws/agent", &target.agents[number].token).await?;
            let (mut sink, mut stream) = socket.split();
            let sending = async {
                for count in 0_u64.. {
                    let version = format!("{count}-{}", "x".repeat(DESCRIPTION));
                    let info = json!({"hostname": format!("host {count}"), "os_name": "linux", "os_version": version,
                        "arch": "x", "ip_address": "10.0.0.1", "num_cpu": count % 64, "total_mem_mb": 1, "version": "1",
                        "transport_mode": "websocket"});
                    let message = json!({"type": "agent_info", "data": info}).to_string();
                    if sink.send(Message::text(message)).await.is_err() {
                        break;
                    }
                    tally.count("messages sent");
                }
            };
            let reading = async { while let Some(Ok(_)) = stream.next().await {} };
            tokio::select! {
                () = sending => {}
                () = reading => {}
            }
            tally.count("sockets closed");
            sleep(Duration::from_secs(1)).await;
        }
    };
    try_join_all((0..target.agents.len()).map(flood)).await.map(|_: Vec<()>| ())
}

/// Changes are recorded at most once a second of each agent.
pub async fn recorded_descriptions(scene: &Scene, elapsed: Duration) -> anyhow::Result<Vec<String>> {
    let recorded = scene.recorded("agent_described").await?;
    println!("  {:<34} {recorded:>10} {:>10.1}", "changes recorded", recorded as f64 / elapsed.as_secs_f64());
    let most = (elapsed.as_secs() + 10) * scene.target.agents.len() as u64;
    let fault = format!("{recorded} descriptions of agents were recorded, more than {most}");
    Ok(if recorded.unsigned_abs() > most { vec![fault] } else { Vec::new() })
}

pub async fn subscriptions(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    let unknown = "00000000-0000-7000-8000-000000000001".to_owned();
    let events: Vec<_> = target.events.iter().chain(std::iter::repeat_n(&unknown, 50)).collect();
    let subscribe = json!({"type": "subscribe", "events": events}).to_string();
    let flood = async |number: u64| {
        let address = Ipv4Addr::new(127, 0, 15, 1 + (number % 5) as u8);
        let socket = open(address, target.address, "/ws/datapoints/stream", &target.viewer).await?;
        let (mut sink, mut stream) = socket.split();
        let sending = async {
            loop {
                let ping = Message::text(r#"{"type": "ping"}"#);
                for message in [Message::text(subscribe.clone()), ping] {
                    sink.send(message).await.context("a subscriber was cut off")?;
                    tally.count("messages sent");
                }
            }
        };
        let reading = async {
            while let Some(Ok(message)) = stream.next().await {
                if message.to_text().is_ok_and(|text| text.contains("pong")) {
                    tally.count("pairs of messages answered");
                }
            }
            anyhow::bail!("a subscriber was cut off")
        };
        tokio::select! {
            ended = sending => ended,
            ended = reading => ended,
        }
    };
    try_join_all((0..SOCKETS).map(flood)).await.map(|_: Vec<()>| ())
}

/// Each message counts as a request of its user.
pub fn excess_messages(seen: &Tally, elapsed: Duration) -> Vec<String> {
    let taken = 2 * seen.of("pairs of messages answered");
    let (rate, burst) = USER_RATE;
    // A socket takes one message before it waits.
    let most = rate * (elapsed.as_secs() + 5) + burst + 2 * SOCKETS;
    let fault = format!("{taken} messages of one viewer were taken, more than {most}");
    if taken > most { vec![fault] } else { Vec::new() }
}

pub async fn logins(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    let flood = async |number: usize| {
        let address = Ipv4Addr::new(127, 0, 16, 1 + (number % usize::from(LOGIN_ADDRESSES)) as u8);
        let client = target.client(address)?;
        let mut next = Instant::now();
        for round in 0_usize.. {
            // One account that exists, and many that do not.
            let account =
                if round % 4 == 0 { "viewer".to_owned() } else { format!("guess {number} {round}") };
            let credentials = json!({"email": account, "password": "a wrong guess"});
            match client.post(target.url("/api/auth/login")).json(&credentials).send().await {
                Ok(answer) => tally.count(answer.status().as_u16()),
                Err(_) => tally.count("closed"),
            }
            next = (next + INTERVAL).max(Instant::now());
            tokio::time::sleep_until(next).await;
        }
        anyhow::Ok(())
    };
    let all = 0..usize::from(LOGIN_ADDRESSES) * LOGINS_EACH;
    try_join_all(all.map(flood)).await.map(|_: Vec<()>| ())
}
