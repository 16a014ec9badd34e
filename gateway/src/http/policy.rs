//! Policies of routes: how large a body may be, which limit counts a request, how a repetition is recognised, and the like. A
//! policy is declared beside the handler, in the `routes` of its context. The layers around the handlers read it from the
//! request and know no paths.

use axum::http::Extensions;

use crate::http::problem::Dialect;

/// Largest JSON body of a route that says nothing else.
pub(crate) const MAX_JSON_BYTES: usize = 1 << 20;

/// The rules that hold for a route besides its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How errors are written.
    pub dialect: Dialect,
    /// Largest body that is read into memory, in bytes. Handlers that stream a body limit it themselves.
    pub max_body: usize,
    /// Which limit counts its requests.
    pub rate: RateClass,
    /// Whether it changes nothing: it takes one of its user's shares of queries, and may ask the replica.
    pub is_read: bool,
    /// How a repeated POST is recognised.
    pub repetition: Repetition,
    /// Whether it needs no credential.
    pub is_open: bool,
    /// Whether its requests have a span.
    pub is_traced: bool,
}

/// The limit that counts a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateClass {
    /// That of the user, or of the network without a valid login.
    General,
    /// That of the credential that records datapoints.
    Ingest,
    /// None here: an extractor counts it by its token, or everyone may send it at any time.
    Uncounted,
}

/// How a POST with an `Idempotency-Key` that was sent before is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// By its body, before the handler.
    ByBody,
    /// By the handler, if at all: its body is too large to be kept in memory.
    ByHandler,
}

impl Policy {
    /// Most routes of services 2 and 3.
    pub(crate) const PROBLEMS: Self = Self {
        dialect: Dialect::Problem,
        max_body: MAX_JSON_BYTES,
        rate: RateClass::General,
        is_read: false,
        repetition: Repetition::ByBody,
        is_open: false,
        is_traced: true,
    };
    /// Routes for clients of InfluxDB.
    pub(crate) const INFLUX: Self =
        Self { dialect: Dialect::Influx, repetition: Repetition::ByHandler, ..Self::PROBLEMS };
    /// Most routes of service 1.
    pub(crate) const SERVICE_1: Self = Self { dialect: Dialect::Service1, ..Self::PROBLEMS };

    /// The policy of the route that `extensions` of a request are of.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::PROBLEMS)
    }

    pub(crate) const fn max_body(self, bytes: usize) -> Self {
        Self { max_body: bytes, ..self }
    }

    pub(crate) const fn rate(self, rate: RateClass) -> Self {
        Self { rate, ..self }
    }

    /// For a POST that changes nothing; a GET never does.
    pub(crate) const fn read(self) -> Self {
        Self { is_read: true, ..self }
    }

    pub(crate) const fn repeated_by_handler(self) -> Self {
        Self { repetition: Repetition::ByHandler, ..self }
    }

    pub(crate) const fn repeated_by_body(self) -> Self {
        Self { repetition: Repetition::ByBody, ..self }
    }

    pub(crate) const fn open(self) -> Self {
        Self { is_open: true, ..self }
    }

    pub(crate) const fn untraced(self) -> Self {
        Self { is_traced: false, ..self }
    }

    /// Whether orchestrators poll it, which neither limits nor credentials keep from an answer.
    pub fn is_probe(self) -> bool {
        self.rate == RateClass::Uncounted && !self.is_traced
    }
}
