//! The HTTP calls of the agent protocol. `GatewayError` classifies failures by the next step to take.

use crate::{
    address::Address,
    config::Config,
    digest::{Entry, Sha256Hex},
    failure::ConnectFailure,
    protocol::{Envelope, PollItem, TransferId},
    system_info::hostname,
    timing::Timing,
};
use reqwest::{
    Body, Client, RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RANGE},
    redirect::Policy,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Answers are read up to here: a manifest of a million entries fits.
const MAX_ANSWER: usize = 256 << 20;

/// Limit of the refusal's body that is read; at most `MAX_REASON` characters of its reason are passed on.
const MAX_REFUSAL: usize = 64 << 10;
const MAX_REASON: usize = 500;

/// For the body of a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Reasons why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("The gateway refused the token of the agent on '{host}' ({0})", host = hostname())]
    Unauthorized(Refusal),
    #[error("The transfer is no longer this agent's to move ({0})")]
    Gone(Refusal),
    #[error("The file is larger than the gateway takes ({0})")]
    TooLarge(Refusal),
    #[error("The gateway has other bytes than expected ({0})")]
    OutOfStep(Refusal),
    #[error("The gateway answered {0}")]
    Status(Refusal),
    #[error("The gateway's answer makes no sense: {0}")]
    BadAnswer(&'static str),
    #[error("The gateway cannot be reached: {0}")]
    Connect(ConnectFailure),
    #[error("The connection to the gateway broke")]
    Broken(#[source] reqwest::Error),
    #[error("The gateway did not answer in time")]
    Timeout,
}

/// An error status, with the gateway's reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// One sentence; empty if the gateway, or a proxy before it, gave none.
    reason: String,
}

#[derive(Deserialize)]
struct RefusalBody {
    #[serde(default)]
    error: String,
    #[serde(default)]
    detail: String,
}

impl Refusal {
    /// The refusal with `body`, which may be cut or no JSON.
    pub fn new(status: StatusCode, body: &[u8]) -> Self {
        let body = serde_json::from_slice(body).map_or(String::new(), |body: RefusalBody| {
            if body.error.is_empty() { body.detail } else { body.error }
        });
        let printable = body.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        let reason: String = printable.take(MAX_REASON).collect();
        Self { status, reason: reason.trim().trim_end_matches('.').to_owned() }
    }

    async fn read(mut response: Response) -> Self {
        let status = response.status();
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                body.extend_from_slice(&chunk);
                if body.len() > MAX_REFUSAL {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(REFUSAL_TIMEOUT, reading).await;
        Self::new(status, &body)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.status)?;
        if self.reason.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.reason) }
    }
}

impl GatewayError {
    /// Whether the same call may succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Broken(_) | Self::Timeout => true,
            Self::Status(Refusal { status, .. }) => {
                status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)
            }
            Self::Unauthorized(_)
            | Self::Gone(_)
            | Self::TooLarge(_)
            | Self::OutOfStep(_)
            | Self::BadAnswer(_) => false,
        }
    }
}

impl From<reqwest::Error> for GatewayError {
    fn from(error: reqwest::Error) -> Self {
        // The address is known and may be long; the text must not hold it twice.
        let error = error.without_url();
        if error.is_connect() {
            Self::Connect(ConnectFailure::find(&error))
        } else if error.is_timeout() {
            Self::Timeout
        } else {
            Self::Broken(error)
        }
    }
}

/// The answer to a finished upload.
#[derive(Debug, Deserialize)]
pub struct Stored {
    pub size: u64,
    pub sha256: Sha256Hex,
}

/// How far an upload is.
#[derive(Debug)]
pub enum UploadState {
    /// The whole file is there.
    Stored(Stored),
    /// This many bytes are there.
    Partial(u64),
}

/// The staged entries of a tree.
#[derive(Debug, Deserialize)]
pub struct Manifest {
    pub files: Vec<Entry>,
    #[serde(default)]
    pub sha256: Option<Sha256Hex>,
}

#[derive(Deserialize)]
struct Connected {
    status: String,
}

/// A client of one gateway with one token.
#[derive(Debug, Clone)]
pub struct Gateway {
    http: Client,
    address: Address,
    timing: Timing,
    /// How often the connection for messages broke. Clones share it.
    breaks: Arc<AtomicU64>,
}

impl Gateway {
    /// Fails only when the TLS library cannot start.
    pub fn new(config: &Config) -> Result<Self, reqwest::Error> {
        let mut bearer =
            HeaderValue::from_str(&config.token.bearer()).unwrap_or(HeaderValue::from_static(""));
        bearer.set_sensitive(true);
        let http = Client::builder()
            .user_agent(concat!("signalbox-agent/", env!("CARGO_PKG_VERSION")))
            .default_headers([(AUTHORIZATION, bearer)].into_iter().collect())
            .connect_timeout(config.timing.connect)
            .pool_idle_timeout(Duration::from_secs(30))
            .http2_adaptive_window(true)
            // The token must not follow a redirect to another host, and a streamed body cannot be sent twice.
            .redirect(Policy::none())
            .build()?;
        let (address, timing) = (config.address.clone(), config.timing.clone());
        Ok(Self { http, address, timing, breaks: Arc::default() })
    }

    /// The connection for messages broke. A file that does not move is then probably on its way over the same broken network.
    pub fn note_break(&self) {
        self.breaks.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the connection for messages broke.
    pub fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Relaxed)
    }

    /// Registers over long polling; also the check of address and token.
    pub async fn connect(&self, system_info: Value) -> Result<(), GatewayError> {
        let call = self.http.post(self.address.agent("connect"));
        let body = json!({ "system_info": system_info, "transport": "polling" });
        let response = expect(call.json(&body).timeout(self.timing.request).send().await?, &[200]).await?;
        let connected: Connected = read_json(response).await?;
        if connected.status == "connected" {
            Ok(())
        } else {
            Err(GatewayError::BadAnswer("'status' is not 'connected'"))
        }
    }

    /// Waits for messages; empty after the timeout.
    pub async fn poll(&self) -> Result<Vec<PollItem>, GatewayError> {
        let limit = self.timing.poll + Duration::from_secs(10);
        let seconds = self.timing.poll.as_secs().clamp(1, 120);
        let call = self.http.get(self.address.poll(seconds)).timeout(limit);
        // Proxies answer 504 if they time out before the gateway does.
        let sent = call.send().await.inspect_err(|_| self.note_break());
        let response = expect(sent?, &[200, 204, 504]).await?;
        if response.status() == StatusCode::OK { read_json(response).await } else { Ok(Vec::new()) }
    }

    /// Takes charge of the messages.
    pub async fn ack(&self, message_ids: &[i64]) -> Result<(), GatewayError> {
        let call = self.http.post(self.address.agent("ack")).json(&json!({ "message_ids": message_ids }));
        expect(call.timeout(self.timing.request).send().await?, &[200, 204]).await.map(drop)
    }

    /// Sends one message.
    pub async fn send(&self, envelope: &Envelope) -> Result<(), GatewayError> {
        let call = self.http.post(self.address.agent("messages")).json(envelope);
        expect(call.timeout(self.timing.request).send().await?, &[200, 204]).await.map(drop)
    }

    /// Sends a file's bytes from `offset` on. There is no time limit; the caller monitors progress.
    pub async fn upload(
        &self,
        id: TransferId,
        name: &str,
        offset: u64,
        total: u64,
        body: Body,
    ) -> Result<UploadState, GatewayError> {
        let mut call = self
            .http
            .put(self.address.file(id, "upload", Some(name)))
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, total.saturating_sub(offset));
        if offset > 0 {
            call = call.header(CONTENT_RANGE, format!("bytes {offset}-{}/{total}", total.saturating_sub(1)));
        }
        self.upload_state(call.body(body)).await
    }

    /// Asks how much of a file is there.
    pub async fn uploaded(
        &self,
        id: TransferId,
        name: &str,
        total: u64,
    ) -> Result<UploadState, GatewayError> {
        let call = self
            .http
            .put(self.address.file(id, "upload", Some(name)))
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, 0)
            .header(CONTENT_RANGE, format!("bytes */{total}"))
            .timeout(self.timing.request);
        self.upload_state(call).await
    }

    async fn upload_state(&self, call: RequestBuilder) -> Result<UploadState, GatewayError> {
        let response = expect(call.send().await?, &[200, 308]).await?;
        if response.status() == StatusCode::OK {
            return read_json(response).await.map(UploadState::Stored);
        }
        match response.headers().get(RANGE) {
            None => Ok(UploadState::Partial(0)),
            Some(range) => last_byte(range)
                .map(|last| UploadState::Partial(last.saturating_add(1)))
                .ok_or(GatewayError::BadAnswer("'Range' is not 'bytes=0-N'")),
        }
    }

    /// The staged entries of a tree.
    pub async fn manifest(&self, id: TransferId) -> Result<Manifest, GatewayError> {
        let call = self.http.get(self.address.file(id, "manifest", None)).timeout(self.timing.answer);
        read_json(expect(call.send().await?, &[200]).await?).await
    }

    /// Starts a download at `offset`; answers with 200 or 206. The caller reads the body and watches that it moves.
    pub async fn download(
        &self,
        id: TransferId,
        name: Option<&str>,
        offset: u64,
    ) -> Result<Response, GatewayError> {
        let mut call = self.http.get(self.address.file(id, "download", name));
        if offset > 0 {
            call = call.header(RANGE, format!("bytes={offset}-"));
        }
        expect(call.send().await?, &[200, 206]).await
    }
}

async fn expect(response: Response, good: &[u16]) -> Result<Response, GatewayError> {
    if good.contains(&response.status().as_u16()) {
        return Ok(response);
    }
    let refusal = Refusal::read(response).await;
    Err(match refusal.status.as_u16() {
        401 => GatewayError::Unauthorized(refusal),
        404 | 409 => GatewayError::Gone(refusal),
        413 => GatewayError::TooLarge(refusal),
        400 | 416 => GatewayError::OutOfStep(refusal),
        _ => GatewayError::Status(refusal),
    })
}

async fn read_json<T: DeserializeOwned>(mut response: Response) -> Result<T, GatewayError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(GatewayError::BadAnswer("it is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|_| GatewayError::BadAnswer("it is not the expected JSON"))
}

fn last_byte(range: &HeaderValue) -> Option<u64> {
    range.to_str().ok()?.trim().strip_prefix("bytes=0-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_resumes_only_from_a_range_that_starts_at_zero() {
        assert_eq!(last_byte(&HeaderValue::from_static("bytes=0-41")), Some(41));
        for odd in ["bytes=1-41", "0-41", "bytes=0-", "bytes=0-x"] {
            assert_eq!(last_byte(&HeaderValue::from_static(odd)), None, "{odd}");
        }
    }

    #[test]
    fn a_transfer_that_is_gone_is_not_tried_again_but_a_broken_gateway_is() {
        let refusal = |status| Refusal::new(status, b"");
        assert!(!GatewayError::Gone(refusal(StatusCode::NOT_FOUND)).is_passing());
        assert!(!GatewayError::Unauthorized(refusal(StatusCode::UNAUTHORIZED)).is_passing());
        assert!(GatewayError::Status(refusal(StatusCode::BAD_GATEWAY)).is_passing());
        assert!(GatewayError::Status(refusal(StatusCode::TOO_MANY_REQUESTS)).is_passing());
        assert!(!GatewayError::Status(refusal(StatusCode::FORBIDDEN)).is_passing());
    }

    #[test]
    fn a_refusal_carries_the_gateways_reason_on_one_line() {
        let shown = |body: &str| Refusal::new(StatusCode::FORBIDDEN, body.as_bytes()).to_string();
        assert_eq!(shown(r#"{"error": "not\nnow."}"#), "403 Forbidden: not now");
        assert_eq!(shown(r#"{"detail": "the disk is full"}"#), "403 Forbidden: the disk is full");
        for body in ["", "<html>", "[]", r#"{"error": 5}"#] {
            assert_eq!(shown(body), "403 Forbidden");
        }
        let long = format!(r#"{{"error": "{}"}}"#, "x".repeat(5000));
        assert!(shown(&long).len() < 600);
    }
}
