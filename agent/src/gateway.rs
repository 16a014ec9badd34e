//! The HTTP calls of the agent protocol. What went wrong is told by `GatewayError`, in terms of what to do next.

use crate::{
    address::Address,
    config::Config,
    digest::{Entry, Sha256Hex},
    failure::ConnectFailure,
    protocol::{Envelope, PollItem, TransferId},
    timing::Timing,
};
use reqwest::{
    Body, Client, RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RANGE},
    redirect::Policy,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::time::Duration;

/// Answers are read up to here: a manifest of a million entries fits.
const MAX_ANSWER: usize = 256 << 20;

/// What a call came to, other than what it was for.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("The gateway refused the agent token (401): it is wrong, expired or revoked")]
    Unauthorized,
    #[error("The transfer is no longer this agent's to move")]
    Gone,
    #[error("The file is larger than the gateway takes")]
    TooLarge,
    #[error("The gateway has other bytes than expected ({0})")]
    OutOfStep(StatusCode),
    #[error("The gateway answered {0}")]
    Status(StatusCode),
    #[error("The gateway's answer makes no sense: {0}")]
    BadAnswer(&'static str),
    #[error("The gateway cannot be reached: {0}")]
    Connect(ConnectFailure),
    #[error("The connection to the gateway broke")]
    Broken(#[source] reqwest::Error),
    #[error("The gateway did not answer in time")]
    Timeout,
}

impl GatewayError {
    /// Whether the same call may succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Broken(_) | Self::Timeout => true,
            Self::Status(status) => status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429),
            Self::Unauthorized | Self::Gone | Self::TooLarge | Self::OutOfStep(_) | Self::BadAnswer(_) => {
                false
            }
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

/// What is staged of a tree.
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
        Ok(Self { http, address: config.address.clone(), timing: config.timing.clone() })
    }

    /// Registers over long polling; also the check of address and token.
    pub async fn connect(&self, system_info: Value) -> Result<(), GatewayError> {
        let call = self.http.post(self.address.agent("connect"));
        let body = json!({ "system_info": system_info, "transport": "polling" });
        let response = expect(call.json(&body).timeout(self.timing.request).send().await?, &[200])?;
        let connected: Connected = read_json(response).await?;
        if connected.status == "connected" {
            Ok(())
        } else {
            Err(GatewayError::BadAnswer("'status' is not 'connected'"))
        }
    }

    /// Waits for messages; none when the time passed without any.
    pub async fn poll(&self) -> Result<Vec<PollItem>, GatewayError> {
        let limit = self.timing.poll + Duration::from_secs(10);
        let seconds = self.timing.poll.as_secs().clamp(1, 120);
        let call = self.http.get(self.address.poll(seconds)).timeout(limit);
        // 504 comes from proxies that do not wait as long as we asked.
        let response = expect(call.send().await?, &[200, 204, 504])?;
        if response.status() == StatusCode::OK { read_json(response).await } else { Ok(Vec::new()) }
    }

    /// Takes charge of the messages.
    pub async fn ack(&self, message_ids: &[i64]) -> Result<(), GatewayError> {
        let call = self.http.post(self.address.agent("ack")).json(&json!({ "message_ids": message_ids }));
        expect(call.timeout(self.timing.request).send().await?, &[200, 204]).map(drop)
    }

    /// Sends one message.
    pub async fn send(&self, envelope: &Envelope) -> Result<(), GatewayError> {
        let call = self.http.post(self.address.agent("messages")).json(envelope);
        expect(call.timeout(self.timing.request).send().await?, &[200, 204]).map(drop)
    }

    /// Sends a file's bytes from `offset` on. The body may take its time; the caller watches that it moves.
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
        let response = expect(call.send().await?, &[200, 308])?;
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

    /// What is staged of a tree.
    pub async fn manifest(&self, id: TransferId) -> Result<Manifest, GatewayError> {
        let call = self.http.get(self.address.file(id, "manifest", None)).timeout(self.timing.answer);
        read_json(expect(call.send().await?, &[200])?).await
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
        expect(call.send().await?, &[200, 206])
    }
}

fn expect(response: Response, good: &[u16]) -> Result<Response, GatewayError> {
    let status = response.status();
    if good.contains(&status.as_u16()) {
        return Ok(response);
    }
    Err(match status.as_u16() {
        401 => GatewayError::Unauthorized,
        404 | 409 => GatewayError::Gone,
        413 => GatewayError::TooLarge,
        400 | 416 => GatewayError::OutOfStep(status),
        _ => GatewayError::Status(status),
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
    fn only_a_range_from_the_start_tells_how_far_an_upload_is() {
        assert_eq!(last_byte(&HeaderValue::from_static("bytes=0-41")), Some(41));
        for odd in ["bytes=1-41", "0-41", "bytes=0-", "bytes=0-x"] {
            assert_eq!(last_byte(&HeaderValue::from_static(odd)), None, "{odd}");
        }
    }

    #[test]
    fn a_transfer_that_is_gone_is_not_tried_again_but_a_broken_gateway_is() {
        assert!(!GatewayError::Gone.is_passing());
        assert!(!GatewayError::Unauthorized.is_passing());
        assert!(GatewayError::Status(StatusCode::BAD_GATEWAY).is_passing());
        assert!(GatewayError::Status(StatusCode::TOO_MANY_REQUESTS).is_passing());
        assert!(!GatewayError::Status(StatusCode::FORBIDDEN).is_passing());
    }
}
