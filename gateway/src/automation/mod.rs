//! Rules that watch the values of channels, their alarms, contacts that are notified of them, webhooks and deliveries.

mod alarm_backtest;
mod alarms;
mod backtest;
mod contacts;
mod deliveries;
mod event_types;
mod messages;
mod rule_history;
mod rule_references;
mod rules;
mod webhook_history;
mod webhook_keys;
mod webhook_rotation;
mod webhook_trials;
mod webhooks;

pub use event_types::webhook_event_schemas;
use utoipa_axum::routes;

use crate::{policy::Policy, routes::Routes};

/// Limits that the description of the interface shows.
pub(crate) mod limits {
    pub(crate) use super::{
        alarm_backtest::{MAX_FIRINGS, MAX_INTERVALS},
        webhook_keys::MAX_SECRET,
        webhook_rotation::MAX_KEEP_SECONDS,
        webhook_trials::SHOWN,
    };
}

/// The routes of automation.
pub(crate) fn routes() -> Routes {
    const READ: Policy = Policy::PROBLEMS.read();
    Routes::new(Policy::PROBLEMS)
        .routes(routes!(rules::list, rules::create))
        .routes(routes!(rules::get, rules::update, rules::delete))
        .routes(routes!(alarms::silence))
        .routes(routes!(alarms::list))
        .routes(routes!(alarms::get))
        .routes(routes!(alarms::acknowledge))
        .routes(routes!(alarms::unacknowledge))
        .routes(routes!(contacts::list, contacts::create))
        .routes(routes!(contacts::get, contacts::update, contacts::delete))
        .routes(routes!(messages::test))
        .routes(routes!(messages::list))
        .routes(routes!(messages::get))
        .routes(routes!(messages::redeliver))
        .routes(routes!(rule_history::history))
        .routes(routes!(rule_history::restore))
        .with(READ, routes!(backtest::backtest))
        .with(READ, routes!(backtest::backtest_draft))
        .routes(routes!(webhooks::list, webhooks::create))
        .routes(routes!(webhooks::get, webhooks::update, webhooks::delete))
        .routes(routes!(event_types::list))
        .routes(routes!(webhook_rotation::rotate))
        .routes(routes!(webhook_history::history))
        .routes(routes!(webhook_history::restore))
        .routes(routes!(webhook_trials::test))
        .routes(routes!(webhook_trials::replay))
        .routes(routes!(webhook_trials::dry_run))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::get))
        .routes(routes!(deliveries::redeliver))
        .routes(routes!(deliveries::redeliver_failed))
}
