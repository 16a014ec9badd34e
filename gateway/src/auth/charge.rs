use axum::{extract::FromRef, http::request::Parts};
use signalbox_clock::Clock;

use crate::{
    client_address::{ClientAddress, TrustedProxies},
    limits::Rate,
    problem::Problem,
    services::limits::Limiter,
    state::Services,
};

/// A look-up that a network was charged for.
#[must_use]
pub(super) struct Charge(Option<(String, Rate)>);

impl Charge {
    /// For a credential that costs no look-up.
    pub(super) const NONE: Self = Self(None);

    /// Charges the network of the client before the database is asked about a token that may be made up.
    ///
    /// # Errors
    /// The network has had too many such look-ups.
    pub(super) fn take(parts: &Parts, state: &Services) -> Result<Self, Problem> {
        let key = format!("look-up:{}", ClientAddress::of(parts, &TrustedProxies::from_ref(state)).network());
        let limits = &state.config.limits;
        let rate = Rate { per_minute: limits.requests_per_minute, burst: limits.request_burst };
        state.limiter.take(&key, rate, state.clock.now()).map_err(Problem::too_many)?;
        Ok(Self(Some((key, rate))))
    }

    /// Takes the charge back: the token is valid.
    pub(super) fn give_back(self, clock: &Clock, limiter: &Limiter) {
        if let Some((key, rate)) = self.0 {
            limiter.give_back(&key, rate, clock.now());
        }
    }
}
