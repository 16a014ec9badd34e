//! The description of the interface, made from the code, and its page.

use axum::{Json, Router, routing::get};
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::{identity, serve::health_routes, state::AppState, transfer};

/// What the description says of the whole.
#[derive(OpenApi)]
#[openapi(
    info(title = "Signalbox", description = "Files, sensors and documents on one event log."),
    modifiers(&Security)
)]
struct Description;

struct Security;

impl Modify for Security {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = |format: &str, text: &str| {
            let http = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format(format);
            SecurityScheme::Http(http.description(Some(text)).build())
        };
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("jwt", scheme("JWT", "From POST /api/auth/login"));
        components.add_security_scheme("agent", scheme("agent token", "From POST /api/tokens"));
    }
}

/// All routes with their description.
pub(crate) fn described_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(Description::openapi())
        .merge(health_routes())
        .merge(identity::routes())
        .merge(transfer::routes())
}

/// The description of the whole interface, after OpenAPI 3.1.
pub fn openapi() -> utoipa::openapi::OpenApi {
    described_routes().into_openapi()
}

/// The interactive page at `/api/docs`, and the description at `/api/openapi.json`. Works without a network.
pub(crate) fn pages(description: utoipa::openapi::OpenApi) -> Router<AppState> {
    let json = description.clone();
    Router::new()
        .route("/api/v1/openapi.json", get(move || async move { Json(json) }))
        .merge(SwaggerUi::new("/api/docs").url("/api/openapi.json", description))
}
