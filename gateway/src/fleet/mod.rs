//! Packages of plugins, instances of plugins, and the channels that these feed and obey.

mod channels;
mod claims;
mod classes;
mod instances;
mod mappings;
mod packages;
mod upload;

use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use packages::sweep;

use crate::state::AppState;

/// Where packages are uploaded: the handler itself recognises a repetition, when it has received the wheel.
pub(crate) const UPLOAD: &str = "/api/v1/plugins/packages/upload";

/// The routes of plugins.
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
}
