use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use reqwest::{Client, Method, StatusCode, header::HeaderMap};
use serde_json::{Value, json};

use super::signalbox::{EMAIL, PASSWORD};

const LIMIT: Duration = Duration::from_secs(30);

/// The HTTP interface of a gateway, as its admin. Clones share connections.
#[derive(Debug, Clone)]
pub struct Api {
    client: Client,
    /// Where the gateway listens.
    pub address: SocketAddr,
    token: String,
}

/// The answer to a call.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub bytes: Bytes,
}

/// An agent that exists, and its credential.
#[derive(Debug, Clone)]
pub struct AgentAccount {
    /// The integer that clients see.
    pub number: i64,
    /// Its token.
    pub token: String,
}

impl Api {
    /// The interface at `address`, not logged in.
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().timeout(LIMIT).build()?;
        Ok(Self { client, address, token: String::new() })
    }

    /// The same login at another gateway.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { address, ..self.clone() }
    }

    /// Logs in as the admin.
    pub async fn log_in(&mut self) -> anyhow::Result<()> {
        let credentials = json!({ "email": EMAIL, "password": PASSWORD });
        let answer = self.call(Method::POST, "/api/auth/login", Some(&credentials)).await?;
        self.token = text(&answer["token"]).context("a login without a token")?;
        Ok(())
    }

    /// The admin's token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Makes one call; fails with what the answer says unless its status is a success.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let answer = self.answer(method, path, body).await?;
        Ok(if answer.is_empty() { Value::Null } else { serde_json::from_slice(&answer)? })
    }

    /// Makes one call and returns the answer unread.
    pub async fn answer(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Vec<u8>> {
        let Exchange { status, bytes, .. } = self.exchange(method.clone(), path, body).await?;
        if !status.is_success() {
            bail!("{method} {path} was answered with {status}: {}", String::from_utf8_lossy(&bytes));
        }
        Ok(bytes.into())
    }

    /// Makes one call and returns whatever was answered.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Exchange> {
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(Exchange { status, headers, bytes: response.bytes().await? })
    }

    /// `GET path`.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None).await
    }

    /// `POST path`.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// `POST path` that is carried out once, however often it is repeated with the same `key`.
    pub async fn post_once(&self, path: &str, key: &str, body: &Value) -> anyhow::Result<Value> {
        self.post_noting_repeats(path, key, body).await.map(|(answer, _)| answer)
    }

    /// As [`Api::post_once`]; also returns whether the answer says that what was written shows later.
    pub async fn post_noting_repeats(
        &self,
        path: &str,
        key: &str,
        body: &Value,
    ) -> anyhow::Result<(Value, bool)> {
        let request = self.client.post(format!("http://{}{path}", self.address)).bearer_auth(&self.token);
        let response = request.header("Idempotency-Key", key).json(body).send().await?;
        let (status, eventual) = (response.status(), response.headers().contains_key("consistency"));
        let text = response.text().await?;
        ensure!(status.is_success(), "POST {path} was answered with {status}: {text}");
        Ok((serde_json::from_str(&text)?, eventual))
    }

    /// Creates an agent and a token for it.
    pub async fn add_agent(&self, name: &str) -> anyhow::Result<AgentAccount> {
        let agent = self.post("/api/agents", &json!({ "name": name, "type": "server" })).await?;
        let number = agent["id"].as_i64().context("an agent without an id")?;
        let token = self.post("/api/tokens", &json!({ "name": name, "agent_id": number })).await?;
        Ok(AgentAccount { number, token: text(&token["value"]).context("a token without its value")? })
    }

    /// Asks for a transfer between two agents; returns its number.
    pub async fn add_transfer(
        &self,
        source: &AgentAccount,
        destination: &AgentAccount,
        source_path: &str,
        destination_path: &str,
    ) -> anyhow::Result<i64> {
        let transfer = json!({
            "source_agent_id": source.number,
            "destination_agent_id": destination.number,
            "source_path": source_path,
            "destination_path": destination_path,
        });
        let made = self.post("/api/transfers", &transfer).await?;
        made["id"].as_i64().context("a transfer without an id")
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
