//! An HTTP client that checks each answer against the description of the interface.

use std::{
    net::SocketAddr,
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::{Method, Request, RequestBuilder, header::HeaderValue, redirect::Policy};
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_test_support::time_limit;
use tokio::time::{sleep, timeout};

use super::{Answer, ReadModels, VictimGateway, conformance, examples, seconds};

/// Speaks to the gateways of a service in turn, with one credential, or none.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    gateways: Arc<[SocketAddr]>,
    /// Shared by clones: consecutive requests are sent to different gateways.
    turn: Arc<AtomicUsize>,
    /// The one of them that is killed now and then.
    victim: Option<Arc<VictimGateway>>,
    /// The read models to wait for after an answer to a write that did not.
    read_models: Option<ReadModels>,
    pub token: Option<String>,
}

impl Client {
    /// Prefix of the keys that it adds to POSTs.
    pub const KEYS: &str = "repeatable-";

    pub fn new(address: SocketAddr) -> Self {
        Self::of(&[address])
    }

    /// Speaks to all of `gateways`, as through a load balancer.
    pub fn of(gateways: &[SocketAddr]) -> Self {
        let http = reqwest::Client::builder().redirect(Policy::none()).pool_max_idle_per_host(4);
        Self {
            http: http.build().unwrap(),
            gateways: gateways.into(),
            turn: Arc::default(),
            victim: None,
            read_models: None,
            token: None,
        }
    }

    /// On a busy machine too, when an answer does not wait for the read models any longer.
    pub fn that_sees_its_writes(self, read_models: &ReadModels) -> Self {
        Self { read_models: Some(read_models.clone()), ..self }
    }

    /// Looks after requests to the gateway that is killed, as a load balancer does.
    pub fn that_outlives(self, victim: Option<Arc<VictimGateway>>) -> Self {
        Self { victim, ..self }
    }

    fn gateway(&self) -> SocketAddr {
        self.gateways[self.turn.fetch_add(1, Ordering::Relaxed) % self.gateways.len()]
    }

    /// A gateway that lives as long as the test.
    fn lasting_gateway(&self) -> SocketAddr {
        match &self.victim {
            Some(victim) => *self.gateways.iter().find(|address| **address != victim.address).unwrap(),
            None => self.gateway(),
        }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The same credential at the gateway that `other` speaks to.
    pub fn at(&self, other: &Self) -> Self {
        Self { token: self.token.clone(), ..other.clone() }
    }

    pub fn anonymous(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    pub async fn log_in(&self, login: &str, password: &str) -> Self {
        let answer = self.post("/api/auth/login", json!({"email": login, "password": password})).await;
        self.with_token(answer.expect(200)["token"].as_str().unwrap())
    }

    /// Address of `path` for other clients, valid during the test.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.lasting_gateway())
    }

    /// Address of the WebSocket at `path`.
    pub fn socket_url(&self, path: &str) -> String {
        format!("ws://{}{path}", self.lasting_gateway())
    }

    /// A request that [`Client::send`] sends.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.authorized(self.http.request(method, format!("http://{}{path}", self.gateway())))
    }

    /// A GET whose answer the test reads as a stream.
    pub fn stream(&self, path: &str) -> RequestBuilder {
        self.authorized(self.http.get(self.url(path)))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Waits until the resource at `path` meets the condition; returns it.
    #[track_caller]
    pub fn until(&self, path: String, mut is_so: impl FnMut(&Value) -> bool) -> impl Future<Output = Value> {
        let (client, place) = (self.clone(), Location::caller());
        async move {
            let mut last = Value::Null;
            let found = async {
                loop {
                    last = client.get(&path).await.expect(200);
                    if is_so(&last) {
                        return;
                    }
                    sleep(Duration::from_millis(20)).await;
                }
            };
            if timeout(time_limit(seconds(60)), found).await.is_err() {
                panic!("{place}: timed out; {path} is {last}");
            }
            last
        }
    }

    /// Sends `request` and reads the whole answer.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        let request = request.build().unwrap();
        let sent = examples::Sent::of(&request);
        let answer = match &self.victim {
            Some(victim) if request.url().port() == Some(victim.address.port()) => {
                self.send_beside(victim, request).await
            }
            _ => self.execute(request).await.unwrap(),
        };
        conformance::check(&answer);
        examples::note(sent, &answer);
        if let (Some(read_models), Some("eventual")) = (&self.read_models, answer.header("consistency")) {
            read_models.show_all().await;
        }
        answer
    }

    /// Sends a request to the gateway that is killed now and then; without an answer, repeats it at another one.
    async fn send_beside(&self, victim: &VictimGateway, mut request: Request) -> Answer {
        let again = repetition(&mut request);
        let _alive = if again.is_none() { Some(victim.spare().await) } else { None };
        if !victim.is_away() {
            let answer = self.execute(request).await;
            request = match (answer, again) {
                (Ok(answer), None) => return answer,
                (Ok(answer), Some(_)) if answer.is_whole => return answer,
                (_, Some(again)) => again,
                (Err(error), None) => panic!("{error:?}"),
            };
        }
        request.url_mut().set_port(Some(self.lasting_gateway().port())).unwrap();
        self.execute(request).await.unwrap()
    }

    async fn execute(&self, request: Request) -> reqwest::Result<Answer> {
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let mut response = self.http.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        let is_whole = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                ended => break ended.is_ok(),
            }
        };
        Ok(Answer { method, path, status, headers, body, is_whole })
    }
}

/// `request` once more, if that does no harm: POSTs get an `Idempotency-Key` unless they have one.
fn repetition(request: &mut Request) -> Option<Request> {
    // Codes of a login at a provider are good once.
    let has_code = ["/sso/callback", "/sso/exchange"].iter().any(|end| request.url().path().ends_with(end));
    let is_post = request.method() == Method::POST;
    if has_code || !(is_post || request.method().is_safe()) {
        return None;
    }
    if is_post {
        let key = format!("{}{}", Client::KEYS, Clock::system().new_id());
        let key = HeaderValue::from_str(&key).unwrap();
        request.headers_mut().entry("idempotency-key").or_insert(key);
    }
    request.try_clone()
}

/// `text` as it stands in a query.
pub fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
