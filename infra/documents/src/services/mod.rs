//! Network services called by the parent: Tika, Google Cloud Vision, a language model. Children have no network.
//!
//! Every call has a limit of time and of bytes. A service that fails again and again is left alone for a while: see
//! [`breaker`].

mod breaker;
mod google_vision;
mod llm;
mod tika;

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode, header, redirect};
use tokio::time::{sleep, timeout};

pub(crate) use google_vision::GoogleVision;
pub(crate) use llm::Llm;
pub(crate) use tika::{Page, Tika};

use crate::failure::Failure;
use breaker::Breaker;

const CONNECT: Duration = Duration::from_secs(3);
/// How often a call is made again, and the longest wait before that.
const RETRIES: u32 = 2;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A service behind HTTP.
pub(crate) struct Service {
    /// Name of the service in messages.
    name: &'static str,
    address: String,
    client: Client,
    limit: Duration,
    breaker: Breaker,
}

#[derive(Debug)]
struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

/// Why it did not answer.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("it has failed often and is left alone for a while")]
    Open,
    #[error("it did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("it was not reached, or the connection broke")]
    Transport(#[source] reqwest::Error),
    #[error("it is overloaded or not ready: it answered with {0}")]
    Busy(StatusCode, Option<Duration>),
    #[error("its answer is longer than is read")]
    TooLong,
}

impl Service {
    /// The one at `address`, whose calls may take `seconds`.
    fn new(name: &'static str, address: &str, seconds: u64) -> Result<Self, ServiceError> {
        let unusable = |source| ServiceError { name, source };
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .map_err(unusable)?;
        let address = address.trim_end_matches('/').to_owned();
        // A malformed address is reported at startup.
        client.get(&address).build().map_err(unusable)?;
        let limit = Duration::from_secs(seconds.max(1));
        Ok(Self { name, address, client, limit, breaker: Breaker::new(name) })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    /// Sends `request` once and reads at most `most` bytes of its answer.
    async fn call(&self, request: RequestBuilder, most: usize) -> Result<Answer, CallError> {
        let permit = self.breaker.admit().ok_or(CallError::Open)?;
        let answered = timeout(self.limit, exchange(request, most)).await;
        let answer = answered.unwrap_or(Err(CallError::Timeout(self.limit)));
        // An answer that is too long is the document's fault.
        permit.settle(matches!(answer, Ok(_) | Err(CallError::TooLong)));
        answer
    }

    /// The same for what may be sent again: waits and does so when the service is busy.
    async fn call_patiently(
        &self,
        request: impl Fn() -> RequestBuilder,
        most: usize,
    ) -> Result<Answer, CallError> {
        let mut tried = 0;
        loop {
            match self.call(request(), most).await {
                Err(CallError::Busy(_, wait)) if tried < RETRIES => {
                    tried += 1;
                    sleep(wait.unwrap_or(Duration::from_secs(1 << (tried - 1))).min(LONGEST_WAIT)).await;
                }
                answer => return answer,
            }
        }
    }

    /// The failure shown to callers when a service does not answer; the log has the cause.
    fn unavailable(&self, error: &CallError) -> Failure {
        tracing::warn!(service = self.name, cause = ?error, "a service did not answer");
        Failure::unavailable(format!("{} is not available: {error}; try again in a moment", self.name))
    }
}

/// Why a service cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the address of {name} in the configuration cannot be used: {source}")]
pub struct ServiceError {
    name: &'static str,
    source: reqwest::Error,
}

async fn exchange(request: RequestBuilder, most: usize) -> Result<Answer, CallError> {
    let mut answer = request.send().await.map_err(CallError::Transport)?;
    let status = answer.status();
    if matches!(status.as_u16(), 429 | 502..=504) {
        let wait =
            answer.headers().get(header::RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
        return Err(CallError::Busy(status, wait.map(Duration::from_secs)));
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(CallError::Transport)? {
        if body.len() + piece.len() > most {
            return Err(CallError::TooLong);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Answer { status, body })
}
