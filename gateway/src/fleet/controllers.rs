//! Which callers are controllers: these alone are shown the secrets in configurations.

use signalbox_domain::identity::{ApiToken, ApiTokenCommand, Role};
use signalbox_event_store::{LogFilter, LogOrder, search};
use uuid::Uuid;

use crate::{
    auth::{Credential, CurrentUser},
    context::RequestContext,
    problem::Problem,
    services::{auth::ApiTokens, commands::Commands, replica::Database},
};

/// Whether `user` is shown the secrets in configurations: a controller, which may be known as one only from the log.
pub(super) async fn sees_secrets(
    database: &Database,
    commands: &Commands,
    api_tokens: &ApiTokens,
    user: &CurrentUser,
    context: &RequestContext,
) -> Result<bool, Problem> {
    let Credential::ApiToken(token) = user.credential else { return Ok(false) };
    if user.controller.is_some() || user.role < Role::Operator {
        return Ok(user.runs_controller());
    }
    if let Some(has_run) = api_tokens.has_run_controller(token) {
        return Ok(has_run);
    }
    // The log has the owner of a token that reported, not the token: all of the owner's older ones count as controllers'.
    let filter = LogFilter {
        actor: Some(user.actor().to_string()),
        event_type: Some("plugin_instance_reported".to_owned()),
        ..LogFilter::default()
    };
    let reported = search(&database.primary, &filter, LogOrder::NewestFirst, 1).await;
    let has_reported = !reported.map_err(|error| Problem::internal(&error))?.is_empty();
    api_tokens.remember_controller(token, has_reported);
    if has_reported {
        note_controller(commands, user, context, token).await;
    }
    Ok(has_reported)
}

/// Notes that a token of an earlier version is a controller's. A failure is made up for with the next report.
pub(super) async fn note_controller(
    commands: &Commands,
    user: &CurrentUser,
    context: &RequestContext,
    token: Uuid,
) {
    let metadata = context.metadata(user.actor(), "note controller");
    let noted = commands.write::<ApiToken>(token, None, &metadata, &ApiTokenCommand::NoteController).await;
    if let Err(rejection) = noted {
        tracing::warn!(%token, code = %rejection.code, "an API token was not noted as a controller's");
    }
}
