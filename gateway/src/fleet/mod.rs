//! Packages of plugins, instances of plugins, and the channels that these feed and obey. Firmware updates.

mod channels;
mod claims;
mod classes;
mod firmware;
mod firmware_upload;
mod instance_config;
mod instances;
mod mappings;
mod own_events;
mod packages;
mod redaction;
mod upload;

use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use packages::sweep;

use crate::state::AppState;

/// Limits that the description of the interface shows.
pub(crate) mod limits {
    pub(crate) use super::claims::{MAX_INSTANCES as MAX_CLAIMED, MAX_NAME as MAX_CONTROLLER};
}

/// Where packages are uploaded.
const UPLOAD: &str = "/api/v1/plugins/packages/upload";

/// Where files are uploaded: the handlers themselves recognise a repetition, when they have received the file.
pub(crate) fn takes_files(path: &str) -> bool {
    [UPLOAD, "/api/v1/ota/upload"].contains(&path)
}

/// The routes of plugins and firmware.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(classes::available))
        .routes(routes!(packages::list))
        .routes(routes!(upload::upload))
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
        .routes(routes!(firmware_upload::upload))
        .routes(routes!(firmware::get, firmware::delete))
        .routes(routes!(firmware::apply))
        .routes(routes!(firmware::rollback))
}
