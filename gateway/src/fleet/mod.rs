//! Packages of plugins, instances of plugins, and the channels that these feed and obey. Firmware updates.

mod channels;
mod claims;
mod classes;
mod controllers;
mod firmware;
mod firmware_upload;
mod instance_config;
mod instances;
mod mappings;
mod own_events;
mod packages;
mod redaction;
pub(crate) mod services;
mod upload;

use utoipa_axum::routes;

pub(crate) use packages::sweep;

use crate::{policy::Policy, routes::Routes};

/// Limits that the description of the interface shows.
pub(crate) mod limits {
    pub(crate) use super::claims::{MAX_INSTANCES as MAX_CLAIMED, MAX_NAME as MAX_CONTROLLER};
}

/// The routes of plugins and firmware.
pub(crate) fn routes() -> Routes {
    const FILE: Policy = Policy::PROBLEMS.repeated_by_handler();
    Routes::new(Policy::PROBLEMS)
        .routes(routes!(classes::available))
        .routes(routes!(packages::list))
        .with(FILE, routes!(upload::upload))
        .routes(routes!(packages::uninstall))
        .routes(routes!(packages::wheel))
        .routes(routes!(instances::list, instances::create))
        .routes(routes!(instances::get, instances::update, instances::delete))
        .routes(routes!(instances::report))
        .routes(routes!(claims::claim))
        .routes(routes!(mappings::list, mappings::create))
        .routes(routes!(mappings::update, mappings::delete))
        .routes(routes!(firmware::list, firmware::create))
        .routes(routes!(firmware::check))
        .with(FILE, routes!(firmware_upload::upload))
        .routes(routes!(firmware::get, firmware::delete))
        .routes(routes!(firmware::apply))
        .routes(routes!(firmware::rollback))
}
