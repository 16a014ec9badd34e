use std::{error::Error, time::Duration};

use reqwest::{Client, RequestBuilder, StatusCode, redirect};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

const CONNECT: Duration = Duration::from_secs(3);
/// A whole call.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest answer.
const MAX_BYTES: usize = 1 << 20;

/// Why a provider gave no answer that can be used. For the log, not for users.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum WebError {
    #[error("it did not answer within {} s", LIMIT.as_secs())]
    Timeout,
    #[error("it was not reached, or the connection broke: {0}")]
    Transport(String),
    #[error("it answered with status {0}")]
    Status(StatusCode),
    #[error("its answer is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("its answer is not what it should be: {0}")]
    Unreadable(String),
}

/// A client that follows no redirects.
pub(crate) fn client() -> Result<Client, reqwest::Error> {
    Client::builder()
        .connect_timeout(CONNECT)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .build()
}

/// The JSON that `request` is answered with.
pub(crate) async fn json<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, WebError> {
    let (status, body) = timeout(LIMIT, exchange(request)).await.map_err(|_| WebError::Timeout)??;
    if !status.is_success() {
        return Err(WebError::Status(status));
    }
    serde_json::from_slice(&body).map_err(|error| WebError::Unreadable(error.to_string()))
}

async fn exchange(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), WebError> {
    let mut answer = request.send().await.map_err(|error| explain(&error))?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| explain(&error))? {
        if body.len() + piece.len() > MAX_BYTES {
            return Err(WebError::TooLong);
        }
        body.extend_from_slice(&piece);
    }
    Ok((answer.status(), body))
}

/// The innermost cause says most; the outer ones repeat the address.
fn explain(error: &reqwest::Error) -> WebError {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    WebError::Transport(cause.to_string())
}
