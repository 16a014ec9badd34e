use std::{
    collections::BTreeMap,
    future::Future,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use futures::StreamExt;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_tungstenite::WebSocketStream;

use crate::{
    documents::{EXTRACT, FORM, form},
    measured::{Kind, Measured},
    scene::{Scene, add_user, log_in, stop_experiment, text},
    socket::open,
    system::{AgentAccount, Api},
};

/// Where the bystander is; its logins are divided among several, as those of three offices.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const OFFICES: u8 = 3;
/// Accounts that log in again and again; each may do so 10 times a minute.
const ACCOUNTS: usize = 40;
const LIMIT: Duration = Duration::from_secs(30);
/// How long a value may take to be shown, before it counts as lost.
const SHOWN: Duration = Duration::from_secs(20);
/// Values that are posted before it works.
const BEFORE: u64 = 10;
const UPLOAD: usize = 64 * 1024;
const TEXT: &str = "The quick brown fox jumps over the lazy dog.\n";

/// An operator at work, with an agent that polls and a socket that shows values.
pub struct Bystander {
    office: Arc<Office>,
}

struct Office {
    api: Api,
    /// For requests that are not logins.
    client: Client,
    doors: Vec<Client>,
    token: String,
    event: String,
    experiment: String,
    agent: AgentAccount,
    /// Has no session, so that nothing is downloaded.
    absent: AgentAccount,
    measured: Mutex<Measured>,
    /// Values that were posted and have not been shown.
    awaited: Mutex<BTreeMap<u64, Instant>>,
    count: Mutex<u64>,
    /// How many values were answered with success.
    accepted: Mutex<u64>,
}

impl Bystander {
    pub async fn begin(scene: &Scene) -> anyhow::Result<Self> {
        let api = scene.api.clone();
        let client = client(ADDRESS)?;
        add_user(&api, "bystander", "operator").await?;
        for number in 0..ACCOUNTS {
            add_user(&api, &format!("colleague{number}"), "viewer").await?;
        }
        let token = log_in(&client, &api, "bystander").await?;
        let event = api.post("/api/v1/events", &json!({"name": "boiler", "type": "sensor"})).await?;
        let event = text(&event, "public_id")?;
        let experiment = api.post("/api/v1/experiments", &json!({"name": "small"})).await?;
        let experiment = text(&experiment, "public_id")?;
        for value in 0..BEFORE {
            api.post("/api/v1/datapoints", &json!({"value": value, "event_public_id": event})).await?;
        }
        stop_experiment(&api, &experiment).await?;
        let doors = (1..=OFFICES).map(client_at).collect::<anyhow::Result<_>>()?;
        let (agent, absent) = (api.add_agent("press").await?, api.add_agent("archive").await?);
        let office = Office {
            api,
            client,
            doors,
            token,
            event,
            experiment,
            agent,
            absent,
            measured: Mutex::default(),
            awaited: Mutex::default(),
            count: Mutex::new(1),
            accepted: Mutex::new(BEFORE),
        };
        let connect = office.client.post(office.url("/api/agent/connect")).json(&json!({}));
        succeed(connect.bearer_auth(&office.agent.token)).await?;
        Ok(Self { office: Arc::new(office) })
    }

    /// A sentence unless every value that was answered with success is there.
    pub async fn lost(&self) -> anyhow::Result<Option<String>> {
        let office = &self.office;
        let path = format!("/api/v1/datapoints?event_public_id={}&page_size=1", office.event);
        let listed: Value =
            succeed(office.authorized(office.client.get(office.url(&path)))).await?.json().await?;
        let total = ["total", "count"].iter().find_map(|name| listed[*name].as_u64());
        let total = total.with_context(|| format!("a list without its length: {listed}"))?;
        let accepted = *office.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((total < accepted).then(|| format!("{accepted} values were taken, {total} are there")))
    }

    /// Works for `duration`; returns how that went.
    pub async fn work(&self, duration: Duration) -> anyhow::Result<Measured> {
        let (office, end) = (&self.office, Instant::now() + duration);
        let stream = open(ADDRESS, office.api.address, "/ws/datapoints/stream", &office.token)
            .await
            .context("a socket");
        let showing = tokio::spawn(office.clone().watch(stream?));
        let ms = Duration::from_millis;
        tokio::join!(
            office.paced(
                Kind::Login,
                ms(250),
                end,
                |office, number| async move { office.log_in(number).await }
            ),
            office.paced(Kind::Channels, ms(150), end, |office, _| async move {
                office.get("/api/v1/events?page_size=50").await
            }),
            office.paced(Kind::Datapoint, ms(150), end, |office, _| async move { office.post_value().await }),
            office.paced(Kind::Series, ms(200), end, |office, _| async move { office.read_series().await }),
            office.paced(Kind::Extraction, ms(300), end, |office, number| async move {
                office.extract(number).await
            }),
            office.paced(Kind::Export, ms(500), end, |office, _| async move {
                office.get(&format!("/api/v1/experiments/{}/export/csv", office.experiment)).await
            }),
            office.transfers(ms(500), end),
        );
        let deadline = Instant::now() + SHOWN;
        while !office.awaited().is_empty() && Instant::now() < deadline && !showing.is_finished() {
            sleep(ms(20)).await;
        }
        showing.abort();
        let lost = std::mem::take(&mut *office.awaited());
        for (value, _) in lost {
            office
                .note(Kind::LiveValue, Err(anyhow::anyhow!("value {value} was not shown within {SHOWN:?}")));
        }
        Ok(std::mem::take(&mut *office.measured()))
    }
}

impl Office {
    /// Starts requests at a fixed rate, however long they take.
    async fn paced<F: Future<Output = anyhow::Result<()>> + Send + 'static>(
        self: &Arc<Self>,
        kind: Kind,
        every: Duration,
        end: Instant,
        request: impl Fn(Arc<Self>, u64) -> F,
    ) {
        let (mut ticks, mut requests) = (interval(every), JoinSet::new());
        while Instant::now() < end {
            ticks.tick().await;
            let number = self.next();
            let (office, request) = (self.clone(), request(self.clone(), number));
            requests.spawn(async move {
                let start = Instant::now();
                let result = request.await;
                office.note(kind, result.map(|()| ms_since(start)));
            });
        }
        while requests.join_next().await.is_some() {}
    }

    /// One transfer after the other: asked for, brought by a poll, uploaded, cancelled.
    async fn transfers(self: &Arc<Self>, every: Duration, end: Instant) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Instant::now() < end {
            ticks.tick().await;
            let start = Instant::now();
            let (asked, brought) = tokio::join!(self.ask(), self.poll());
            let number = match (asked, brought) {
                (Ok(asked), Ok(brought)) if asked == brought => {
                    self.note(Kind::Dispatch, Ok(ms_since(start)));
                    asked
                }
                (asked, brought) => {
                    let error = anyhow::anyhow!("transfer {asked:?} was asked for, {brought:?} was brought");
                    self.note(Kind::Dispatch, Err(error));
                    continue;
                }
            };
            let start = Instant::now();
            let result = self.upload(number).await;
            self.note(Kind::Upload, result.map(|()| ms_since(start)));
            let cancelled =
                self.authorized(self.client.post(self.url(&format!("/api/transfers/{number}/cancel"))));
            if let Err(error) = succeed(cancelled).await {
                self.note(Kind::Upload, Err(error.context("cancel")));
            }
        }
    }

    async fn ask(&self) -> anyhow::Result<i64> {
        let transfer = json!({"source_agent_id": self.agent.number, "destination_agent_id": self.absent.number,
            "source_path": "a.bin", "destination_path": "a.bin"});
        let request = self.client.post(self.url("/api/transfers")).json(&transfer);
        let answer: Value = succeed(self.authorized(request)).await?.json().await?;
        answer["id"].as_i64().context("a transfer without an id")
    }

    /// Polls until a transfer is asked of the agent.
    async fn poll(&self) -> anyhow::Result<i64> {
        let polling = async {
            loop {
                let request = self.client.get(self.url("/api/agent/poll?timeout=20"));
                let answer = succeed(request.bearer_auth(&self.agent.token)).await?.bytes().await?;
                let mails: Vec<Value> =
                    if answer.is_empty() { Vec::new() } else { serde_json::from_slice(&answer)? };
                let ids: Vec<_> = mails.iter().map(|mail| &mail["id"]).collect();
                let taken = self.client.post(self.url("/api/agent/ack")).json(&json!({ "message_ids": ids }));
                succeed(taken.bearer_auth(&self.agent.token)).await?;
                let asked = mails.iter().rfind(|mail| mail["message"]["type"] == "transfer_request");
                if let Some(mail) = asked {
                    let id = &mail["message"]["data"]["transfer"]["id"];
                    return Ok(id.as_str().context("a request without a transfer")?.parse()?);
                }
            }
        };
        timeout(LIMIT, polling).await.context("no poll brought the transfer")?
    }

    async fn upload(&self, transfer: i64) -> anyhow::Result<()> {
        let request = self.client.put(self.url(&format!("/api/files/{transfer}/upload?filename=a.bin")));
        succeed(request.bearer_auth(&self.agent.token).body(vec![7; UPLOAD])).await.map(|_| ())
    }

    async fn log_in(&self, number: u64) -> anyhow::Result<()> {
        let door = &self.doors[number as usize % self.doors.len()];
        log_in(door, &self.api, &format!("colleague{}", number as usize % ACCOUNTS)).await.map(|_| ())
    }

    async fn get(&self, path: &str) -> anyhow::Result<()> {
        let answer = succeed(self.authorized(self.client.get(self.url(path)))).await?;
        answer.bytes().await?;
        Ok(())
    }

    async fn post_value(&self) -> anyhow::Result<()> {
        let value = self.next();
        self.awaited().insert(value, Instant::now());
        let point = json!({"value": value, "event_public_id": self.event});
        let posted =
            succeed(self.authorized(self.client.post(self.url("/api/v1/datapoints")).json(&point))).await;
        if posted.is_err() {
            self.awaited().remove(&value);
        } else {
            *self.accepted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        posted.map(|_| ())
    }

    async fn read_series(&self) -> anyhow::Result<()> {
        let window = json!({"event_public_ids": [self.event], "minutes": 60});
        let request = self.client.post(self.url("/api/v1/datapoints/series")).json(&window);
        succeed(self.authorized(request)).await?.bytes().await?;
        Ok(())
    }

    /// Another text each time, so that nothing that was remembered answers.
    async fn extract(&self, number: u64) -> anyhow::Result<()> {
        let document = format!("{number}\n{}", TEXT.repeat(200));
        let request = self.client.post(self.url(EXTRACT)).header("content-type", FORM);
        let request = request.body(form("a.txt", document.as_bytes()));
        let answer: Value = succeed(self.authorized(request)).await?.json().await?;
        ensure!(
            answer["content"].as_str().is_some_and(|text| text.contains("lazy dog")),
            "another text: {answer}"
        );
        Ok(())
    }

    /// Notes when values are shown. A frame shows the newest value of an event; those before it are shown by it.
    async fn watch(self: Arc<Self>, mut stream: WebSocketStream<TcpStream>) {
        while let Some(Ok(message)) = stream.next().await {
            let Ok(message) = serde_json::from_str::<Value>(message.to_text().unwrap_or_default()) else {
                continue;
            };
            let points = message["datapoints"].as_array().cloned().unwrap_or_default();
            let own = points.iter().filter(|point| point["event_public_id"] == json!(self.event));
            for value in own.filter_map(|point| point["value"].as_f64()) {
                let mut awaited = self.awaited();
                let later = awaited.split_off(&(value as u64 + 1));
                let shown = std::mem::replace(&mut *awaited, later);
                drop(awaited);
                shown.into_values().for_each(|since| self.note(Kind::LiveValue, Ok(ms_since(since))));
            }
        }
        self.note(Kind::LiveValue, Err(anyhow::anyhow!("the socket was closed")));
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        request.bearer_auth(&self.token)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.api.address)
    }

    fn next(&self) -> u64 {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        *count
    }

    fn note(&self, kind: Kind, result: anyhow::Result<f64>) {
        self.measured().add(kind, result);
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaited(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn client_at(number: u8) -> anyhow::Result<Client> {
    client(Ipv4Addr::new(127, 0, 1, 1 + number))
}

fn client(address: Ipv4Addr) -> anyhow::Result<Client> {
    Ok(Client::builder().no_proxy().local_address(IpAddr::from(address)).timeout(LIMIT).build()?)
}

/// Sends `request`; fails unless the status of the answer is a success.
async fn succeed(request: RequestBuilder) -> anyhow::Result<Response> {
    let answer = request.send().await?;
    let status = answer.status();
    if !status.is_success() {
        bail!("{status}: {}", answer.text().await.unwrap_or_default());
    }
    Ok(answer)
}

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}
