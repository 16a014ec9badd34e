//! Apache Tika, a server that reads many more types: <https://cwiki.apache.org/confluence/display/TIKA/TikaServer>.
//!
//! A document is streamed to Tika in one request and returned as XHTML, which a child of this process reads like any
//! other page: the parent parses nothing.

use std::{
    io,
    time::{Duration, Instant},
};

use futures::stream;
use reqwest::{Body, StatusCode, header};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{Mutex, mpsc},
    time::timeout,
};

use super::{CallError, Service, ServiceError};
use crate::{
    failure::Failure,
    options::{OcrEngine, Options},
};

/// Longest answer.
const MAX_BYTES: usize = 64 << 20;
/// Pieces of the document on their way.
const PIECE: usize = 64 * 1024;
const PIECES: usize = 4;
/// How long the question whether it is there may take, and how long its answer holds.
const PROBE: Duration = Duration::from_millis(500);
const HOLDS: Duration = Duration::from_secs(15);
/// The page of a document without any content.
const EMPTY_PAGE: &[u8] = b"<html></html>";

/// A Tika server.
pub(crate) struct Tika {
    service: Service,
    seen: Mutex<Option<(Instant, bool)>>,
}

/// The result for a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// XHTML.
    Read(Vec<u8>),
    /// It does not know the type either.
    Unsupported,
}

impl Tika {
    /// The one at `address`, whose documents may take `seconds`.
    pub(crate) fn new(address: &str, seconds: u64) -> Result<Self, ServiceError> {
        Ok(Self { service: Service::new("Tika", address, seconds)?, seen: Mutex::new(None) })
    }

    /// Whether it answers now. Asked once for all that want to know at the same time, and soon after.
    pub(crate) async fn is_reachable(&self) -> bool {
        if self.service.breaker.is_open() {
            return false;
        }
        let mut seen = self.seen.lock().await;
        if let Some((at, there)) = *seen
            && at.elapsed() < HOLDS
        {
            return there;
        }
        let asked = timeout(PROBE, self.service.client.get(self.service.url("/version")).send()).await;
        let there = matches!(asked, Ok(Ok(answer)) if answer.status().is_success());
        *seen = Some((Instant::now(), there));
        there
    }

    /// Has the `length` bytes of a document read.
    pub(crate) async fn read<R: AsyncRead + Unpin>(
        &self,
        bytes: &mut R,
        length: u64,
        options: &Options,
    ) -> Result<Page, Failure> {
        let (sender, receiver) = mpsc::channel::<io::Result<Vec<u8>>>(PIECES);
        let pieces = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let mut request = self
            .service
            .client
            .put(self.service.url("/tika"))
            .header(header::ACCEPT, "text/html")
            .header(header::CONTENT_LENGTH, length)
            .body(Body::wrap_stream(pieces));
        // It has a Tesseract of its own.
        request = if options.ocr_engine == OcrEngine::Tesseract {
            request.header("X-Tika-OCRLanguage", &options.language)
        } else {
            request.header("X-Tika-OCRskipOcr", "true")
        };
        let (sent, answer) = tokio::join!(send(bytes, length, sender), self.service.call(request, MAX_BYTES));
        if sent.is_err() {
            return Err(Failure::unreadable());
        }
        match answer {
            Ok(answer) => page(answer.status, answer.body),
            Err(CallError::Timeout(limit)) => Err(Failure::timeout(limit.as_secs(), "split the document")),
            Err(CallError::TooLong) => Err(Failure::too_much("the document has more text than is read")),
            Err(error) => Err(self.service.unavailable(&error)),
        }
    }
}

/// Streams the document; an answer that arrives before the document's end is accepted.
async fn send<R: AsyncRead + Unpin>(
    bytes: &mut R,
    length: u64,
    to: mpsc::Sender<io::Result<Vec<u8>>>,
) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let mut piece = Vec::with_capacity(PIECE);
        match (&mut *bytes).take(left).read_buf(&mut piece).await {
            Ok(read) if read > 0 => left -= read as u64,
            ended => {
                let kind = ended.err().map_or(io::ErrorKind::UnexpectedEof, |error| error.kind());
                // Breaks the request, so that half a document is not taken for a whole one.
                let _ = to.send(Err(kind.into())).await;
                return Err(kind.into());
            }
        }
        if to.send(Ok(piece)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn page(status: StatusCode, body: Vec<u8>) -> Result<Page, Failure> {
    match status.as_u16() {
        200 => Ok(Page::Read(body)),
        204 => Ok(Page::Read(EMPTY_PAGE.to_vec())),
        415 => Ok(Page::Unsupported),
        413 => Err(Failure::too_much("the document is larger than the Tika server reads")),
        422 => Err(Failure::corrupt(
            "Tika cannot read the document: it is encrypted, damaged or of an unknown type",
        )),
        500 => Err(Failure::corrupt("the document made Tika fail: it is probably damaged")),
        status => {
            tracing::warn!(status, "Tika answered in an unexpected way");
            Err(Failure::unavailable("the Tika server does not work: its answer was unexpected"))
        }
    }
}
