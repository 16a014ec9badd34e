//! Packages of plugins, instances of plugins, and the channels that these feed and obey. Firmware updates.

mod channels;
mod classes;
mod firmware;
mod firmware_upload;
mod instances;
mod mappings;
mod packages;
mod upload;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

/// Where files are uploaded. A repetition of a package is recognised by its name, not by a key; that of a bundle of firmware by
/// its handler.
pub(crate) fn takes_files(path: &str) -> bool {
    ["/api/v1/plugins/packages/upload", "/api/v1/ota/upload"].contains(&path)
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
        .routes(routes!(mappings::list, mappings::create))
        .routes(routes!(mappings::update, mappings::delete))
        .routes(routes!(firmware::list, firmware::create))
        .routes(routes!(firmware::check))
        .routes(routes!(firmware_upload::upload))
        .routes(routes!(firmware::get, firmware::delete))
        .routes(routes!(firmware::apply))
        .routes(routes!(firmware::rollback))
}
