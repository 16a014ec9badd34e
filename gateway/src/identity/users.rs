use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, NaiveDateTime, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_domain::identity::{NewUser, Role, User, UserChanges, UserCommand};
use signalbox_projections::identity::{
    UserRow,
    queries::{self, UserFilter},
};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::valid_password;
use crate::{
    answer::{self, Page, StatusOut},
    auth::Admin,
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text},
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::{Found, find_at, find_written},
    services::{auth::Passwords, commands::Commands, replica::Database},
};

/// A user as services 2 and 3 show it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserRecordOut {
    public_id: String,
    email: String,
    username: String,
    /// `admin`, `operator` or `viewer`.
    #[schema(value_type = crate::words::Role)]
    role: String,
    admin: bool,
    /// Identity provider; null for local users.
    sso_provider: Option<String>,
    /// Creation time, UTC, without zone, as in `2026-03-01T09:30:00.123456`.
    #[schema(value_type = String)]
    created_on: NaiveDateTime,
    /// Creation time.
    registered_on: DateTime<Utc>,
}

/// A new user.
#[derive(Deserialize, ToSchema)]
pub(crate) struct UserIn {
    email: String,
    /// 2 to 50 characters.
    username: String,
    /// 8 to 256 characters.
    password: String,
    /// `admin`, `operator` (default) or `viewer`.
    #[schema(value_type = Option<crate::words::Role>)]
    role: Option<Role>,
}

/// Changes of a user; absent or null fields stay as they are.
#[derive(Deserialize, ToSchema)]
pub(crate) struct UserChangesIn {
    email: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[schema(value_type = Option<crate::words::Role>)]
    role: Option<Role>,
}

/// A created user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    user: UserRecordOut,
}

/// Which users are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UserParams {
    /// `admin`, `operator` or `viewer`.
    #[param(value_type = Option<crate::words::Role>)]
    role: Option<Role>,
    /// Part of the user name or of the e-mail address, in any case of letters.
    name: Option<String>,
}

/// List users, newest first.
#[utoipa::path(get, path = "/api/v1/users", tag = "users", security(("jwt" = [])), params(EnvelopeParams, Sort<UserRow>, UserParams), operation_id = "list_users",
    responses((status = 200, body = Page<UserRecordOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<UserRow>,
    Params(params): Params<UserParams>,
) -> Result<Json<Page<UserRecordOut>>, Problem> {
    let filter = UserFilter { role: params.role.map(Role::as_str), name: params.name };
    let page = envelope.page()?;
    let (rows, total) = database.read(|pool| queries::users(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One user.
#[utoipa::path(get, path = "/api/v1/users/{id}", tag = "users", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_user",
    responses((status = 200, body = UserRecordOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let row = find_at::<UserRow>(&database, &id, at).await?;
    let version = row.version;
    Ok(answer::resource(version, &UserRecordOut::from(row)))
}

/// Create a user.
#[utoipa::path(post, path = "/api/v1/users", tag = "users", security(("jwt" = [])), request_body = UserIn, operation_id = "create_user",
    responses((status = 201, body = UserCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(passwords): State<Passwords>,
    Admin(current): Admin,
    context: RequestContext,
    JsonBody(user): JsonBody<UserIn>,
) -> Result<Response, Problem> {
    valid_password("password", &user.password)?;
    let new = NewUser {
        number: 0,
        email: user.email,
        username: user.username,
        role: user.role.unwrap_or(Role::Operator),
        password_hash: passwords.hash(user.password).await?,
    };
    let metadata = context.metadata(current.actor(), "create user");
    let written =
        commands.write::<User>(context.resource, None, &metadata, &UserCommand::Create(new)).await?;
    let row = find_written::<UserRow>(&database, &context.resource.to_string(), written).await?;
    let location = format!("/api/v1/users/{}", row.id);
    let out = UserCreatedOut { status: "success", message: "User successfully created.", user: row.into() };
    Ok(answer::written(written, StatusCode::CREATED, Some(&location), &out))
}

/// Change a user. A new password ends all logins of the user.
#[utoipa::path(put, path = "/api/v1/users/{id}", tag = "users", security(("jwt" = [])), params(("id" = String, Path,)), request_body = UserChangesIn, operation_id = "update_user",
    responses((status = 200, body = UserRecordOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(passwords): State<Passwords>,
    change: Change<Admin>,
    JsonBody(changes): JsonBody<UserChangesIn>,
) -> Result<Response, Problem> {
    let UserChangesIn { email, username, password, role } = changes;
    if let Some(password) = &password {
        valid_password("password", password)?;
    }
    let row = change.find::<UserRow>().await.map_err(|missing| {
        let (email, username) = (email.clone(), username.clone());
        let change = UserCommand::Change(UserChanges { email, username, role, password_hash: None });
        judged::<User>(missing, [examples::user(), change])
    })?;
    let password_hash = match password {
        Some(password) => Some(passwords.hash(password).await?),
        None => None,
    };
    let command = UserCommand::Change(UserChanges { email, username, role, password_hash });
    let written = change.write::<User>(row.id, "change user", &command).await?;
    let row = find_written::<UserRow>(&change.database, &change.id, written).await?;
    Ok(answer::written(written, StatusCode::OK, None, &UserRecordOut::from(row)))
}

/// Delete a user; all logins end, and the user's jobs are deleted.
#[utoipa::path(delete, path = "/api/v1/users/{id}", tag = "users", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_user",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(change: Change<Admin>) -> Result<Response, Problem> {
    let row = change.find::<UserRow>().await?;
    let written = change.write::<User>(row.id, "delete user", &UserCommand::Delete).await?;
    Ok(answer::success(written, "User successfully deleted."))
}

impl Found for UserRow {
    const KIND: &'static str = "User";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        queries::user(pool, id.into())
    }
}

impl From<UserRow> for UserRecordOut {
    fn from(row: UserRow) -> Self {
        Self {
            public_id: row.id.to_string(),
            email: row.email,
            username: row.username,
            admin: row.role.is(Role::Admin),
            role: row.role.into(),
            sso_provider: row.sso_provider,
            created_on: row.created_at.naive_utc(),
            registered_on: row.created_at,
        }
    }
}
