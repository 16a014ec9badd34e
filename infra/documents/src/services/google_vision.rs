//! Google Cloud Vision recognises text: `images:annotate` with `DOCUMENT_TEXT_DETECTION`,
//! <https://cloud.google.com/vision/docs/reference/rest/v1/images/annotate>. Each picture is sent as JPEG in one
//! request; the answer has words with places and confidences.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use image::{ExtendedColorType, codecs::jpeg::JpegEncoder};
use serde_json::json;
use signalbox_config::Secret;

use super::{CallError, Service, ServiceError};
use crate::{
    failure::Failure,
    ocr::{Picture, Recognised, vision},
    options,
};

/// Largest picture, encoded: a request may have 10 MB, and letters for bytes take a third more.
const MAX_PICTURE: usize = 7_000_000;
const QUALITY: u8 = 90;
/// Longest answer.
const MAX_BYTES: usize = 32 << 20;

/// Google's service.
pub(crate) struct GoogleVision {
    service: Service,
    key: Secret,
}

impl GoogleVision {
    /// The one at `address`, called with `key`; a picture may take `seconds`.
    pub(crate) fn new(address: &str, key: &Secret, seconds: u64) -> Result<Self, ServiceError> {
        Ok(Self { service: Service::new("Google Vision", address, seconds)?, key: key.clone() })
    }

    /// ISO 639-3 codes of the languages that can be asked for.
    pub(crate) fn languages() -> Vec<String> {
        options::long_codes().map(str::to_owned).collect()
    }

    /// Recognises one picture.
    pub(crate) async fn recognise(&self, picture: Picture, language: &str) -> Result<Recognised, Failure> {
        let (page, width, height, dpi) = (picture.page, picture.width, picture.height, picture.dpi);
        let encoded = tokio::task::spawn_blocking(move || encode(&picture));
        let content = encoded.await.map_err(|_| Failure::Crash)??;
        let hints: Vec<&str> = options::short_code(language).into_iter().collect();
        let body = json!({"requests": [{
            "image": {"content": content},
            "features": [{"type": "DOCUMENT_TEXT_DETECTION"}],
            "imageContext": {"languageHints": hints},
        }]})
        .to_string();
        let request = || {
            let request = self.service.client.post(self.service.url("/v1/images:annotate"));
            let request = request.header("content-type", "application/json");
            request.header("x-goog-api-key", self.key.expose()).body(body.clone())
        };
        let answer = self.service.call_patiently(request, MAX_BYTES).await;
        let answer = answer.map_err(|error| match error {
            CallError::TooLong => Failure::too_much("a page has more text than is read"),
            error => self.service.unavailable(&error),
        })?;
        if !answer.status.is_success() {
            return Err(refused(answer.status.as_u16()));
        }
        vision::words(&answer.body, page, (width, height), dpi).map_err(|code| refused(code.unwrap_or(0)))
    }
}

/// Why there are no words; `status` is of HTTP or of the one picture (`google.rpc.Code`).
fn refused(status: u16) -> Failure {
    tracing::warn!(status, "Google Vision refused a picture");
    match status {
        400 | 3 => Failure::corrupt("Google Vision cannot recognise a picture of the document"),
        401 | 403 | 7 | 16 => Failure::unavailable(
            "Google Vision refuses the key of this installation: extraction.google_vision_key has to be corrected",
        ),
        _ => Failure::unavailable("Google Vision did not recognise a page: try again in a moment"),
    }
}

fn encode(picture: &Picture) -> Result<String, Failure> {
    let mut jpeg = Vec::new();
    let encoded = JpegEncoder::new_with_quality(&mut jpeg, QUALITY).encode(
        &picture.pixels,
        picture.width,
        picture.height,
        ExtendedColorType::L8,
    );
    if encoded.is_err() || jpeg.len() > MAX_PICTURE {
        return Err(Failure::too_much("a page is too large for Google Vision: recognise it with tesseract"));
    }
    Ok(STANDARD.encode(jpeg))
}
