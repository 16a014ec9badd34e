use signalbox_boxed::boxed;
use std::{error::Error, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use http::{HeaderMap, StatusCode};
use reqwest::{Client, RequestBuilder, Response, dns::Resolve, redirect};
use tokio::time::{sleep, timeout};

use crate::{
    Class, Policy, Target,
    resolver::{Denied, Guarded, SystemResolver},
};

/// All of a request: resolving, connecting, sending, and the head of the answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Timeout of the next piece of a body.
const PIECE_LIMIT: Duration = Duration::from_secs(30);
/// Idle time after which a connection is closed.
const IDLE: Duration = Duration::from_secs(30);
/// Connections to one host that wait to be used again.
const MAX_IDLE: usize = 10;
/// Bytes of a response body that are read so that its connection can be reused. They are discarded: the user who
/// named the address may have no access to its content.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Time limit of the body.
const BODY_LIMIT: Duration = Duration::from_millis(250);

/// Reasons why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The host is, or resolves to, an address that may not be reached.
    #[error("the address {address} is {class} and may not be reached")]
    Denied {
        /// The address.
        address: IpAddr,
        class: Class,
    },
    /// No answer within the limit.
    #[error("Timeout")]
    Timeout,
    /// The name cannot be resolved, the connection was refused, or it broke.
    #[error("Transport error: {0}")]
    Transport(String),
}

/// The client. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Egress {
    client: Client,
    policy: Arc<Policy>,
}

impl Egress {
    /// A client that reaches what `policy` allows.
    ///
    /// # Errors
    /// No TLS library can be used.
    pub fn new(policy: Policy) -> Result<Self, reqwest::Error> {
        Self::with_resolver(policy, Arc::new(SystemResolver))
    }

    /// [`Egress::new`] that asks `resolver` instead of the operating system.
    ///
    /// # Errors
    /// As [`Egress::new`].
    pub fn with_resolver(policy: Policy, resolver: Arc<dyn Resolve>) -> Result<Self, reqwest::Error> {
        let policy = Arc::new(policy);
        let client = Client::builder()
            .dns_resolver(Arc::new(Guarded::new(resolver, policy.clone())))
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            // Some receivers know only HTTP/1.1 and read exactly the announced length.
            .http1_only()
            .http1_title_case_headers()
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .build()?;
        Ok(Self { client, policy })
    }

    /// Posts `body` to `target` with `headers`, at most once; returns the status, whatever it is.
    ///
    /// # Errors
    /// [`EgressError`]; after [`EgressError::Timeout`] and most of [`EgressError::Transport`] the receiver may have had it.
    #[boxed]
    pub async fn post(
        &self,
        target: &Target,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<StatusCode, EgressError> {
        self.post_for_head(target, headers, body).await.map(|(status, _)| status)
    }

    /// Like [`Egress::post`]; returns the headers of the answer too.
    ///
    /// # Errors
    /// As [`Egress::post`].
    #[boxed]
    pub async fn post_for_head(
        &self,
        target: &Target,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<(StatusCode, HeaderMap), EgressError> {
        let request = self.client.post(target.url()).headers(headers).body(body);
        let mut answer = self.send(target, request).await?;
        let head = (answer.status(), std::mem::take(answer.headers_mut()));
        discard(answer).await;
        Ok(head)
    }

    /// Sends a GET request to `target`. The caller reads the body, and limits its size and total time.
    ///
    /// # Errors
    /// [`EgressError`].
    #[boxed]
    pub async fn get(&self, target: &Target) -> Result<Download, EgressError> {
        self.send(target, self.client.get(target.url())).await.map(Download)
    }

    async fn send(&self, target: &Target, request: RequestBuilder) -> Result<Response, EgressError> {
        if let Some(address) = target.literal() {
            self.policy.check(address).map_err(|class| EgressError::Denied { address, class })?;
        }
        let sent = timeout(LIMIT, request.send()).await.map_err(|_| EgressError::Timeout)?;
        sent.map_err(|error| explain(&error))
    }
}

/// An answer whose body has not been read.
#[derive(Debug)]
pub struct Download(Response);

impl Download {
    /// The status, whether success or not.
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Length of the body, if announced.
    pub fn length(&self) -> Option<u64> {
        self.0.content_length()
    }

    /// The body. It fails when no data arrives for half a minute.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, EgressError>> + Send {
        stream::try_unfold(self.0, async |mut answer| {
            let piece = timeout(PIECE_LIMIT, answer.chunk()).await.map_err(|_| EgressError::Timeout)?;
            Ok(piece.map_err(|error| explain(&error))?.map(|piece| (piece, answer)))
        })
    }
}

/// Reads the body of `answer` if it is short and arrives quickly; otherwise closes the connection.
async fn discard(mut answer: Response) {
    let read_all = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = answer.chunk().await {
            read += chunk.len();
            if read > MAX_BODY_BYTES {
                return;
            }
        }
    };
    tokio::select! { () = read_all => {}, () = sleep(BODY_LIMIT) => {} }
}

/// The innermost cause is the most specific; the outer ones repeat the address.
fn explain(error: &reqwest::Error) -> EgressError {
    let mut cause: &dyn Error = error;
    loop {
        if let Some(Denied { address, class }) = cause.downcast_ref() {
            return EgressError::Denied { address: *address, class: *class };
        }
        match cause.source() {
            Some(source) => cause = source,
            None => return EgressError::Transport(cause.to_string()),
        }
    }
}
