//! The description of the interface, made from the code, and its page.
//!
//! The routes and views describe their own part. The rest is added afterwards, each from one place: [`fields`] describes fields that
//! mean the same everywhere, [`limits`] takes bounds from the constants that enforce them, [`errors`] says what each error
//! means, and [`examples`] shows what the tests have sent and received.

mod errors;
mod examples;
mod fields;
mod limits;
mod page;
mod walk;

use std::sync::LazyLock;

use axum::{Router, body::Bytes, http::header::CONTENT_TYPE, routing::get};
use serde_json::{Map, Value};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, PathItem, Ref, RefOr, Required, Response, ResponseBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        schema::{ObjectBuilder, Schema, Type},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::{
    automation, changes, extraction, fleet, identity, metrics, monitoring,
    policy::{Policy, Repetition},
    problem::Dialect,
    register,
    routes::{Policies, RoutePolicy, Routes},
    state::Services,
    transfer,
};

const DESCRIPTION: &str = "/api/openapi.json";
/// Types of bodies that consist of bytes alone.
const BYTES: [&str; 6] = [
    "application/octet-stream",
    "application/pdf",
    "application/x-protobuf",
    "application/x-streamed-protobuf",
    "application/x-tar",
    "image/png",
];

/// The description's text about the whole.
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
        components.add_security_scheme(
            "jwt",
            scheme("JWT", "From POST /api/auth/login; or an API token from POST /api/v1/tokens"),
        );
        components.add_security_scheme("agent", scheme("agent token", "From POST /api/tokens"));
    }
}

/// All routes and their policies. They are the same for every gateway of a process, of which tests have hundreds.
pub(crate) static ROUTES: LazyLock<(Router<Services>, Policies)> = LazyLock::new(|| {
    let (router, policies, _) = described_routes().split();
    (router, policies)
});

fn described_routes() -> Routes {
    let mut routes = Routes::described_by(Description::openapi())
        .merge(metrics::routes())
        .merge(automation::routes())
        .merge(changes::routes())
        .merge(extraction::routes())
        .merge(fleet::routes())
        .merge(identity::routes())
        .merge(monitoring::routes())
        .merge(register::routes())
        .merge(transfer::routes());
    routes.describe(describe_layers);
    routes
}

/// Adds what the layers around the handlers do to every operation: limits, headers, and how errors are written.
fn describe_layers(policy: Policy, item: &mut PathItem) {
    if policy.is_probe() {
        return;
    }
    let dialect = policy.dialect;
    let has_plain_errors = dialect != Dialect::Problem;
    let PathItem { get, put, post, delete, .. } = item;
    let is_post = post.is_some();
    for operation in [get, put, post, delete].into_iter().flatten() {
        let statuses: Vec<String> = operation.responses.responses.keys().cloned().collect();
        if statuses.iter().any(|status| status == "412") {
            add_header(
                operation,
                "If-Match",
                "ETag of the version that the change is meant for, or several, separated by commas",
                ObjectBuilder::new(),
            );
        }
        for status in statuses.iter().filter(|status| status.as_str() >= "400") {
            let refused = operation.responses.responses.get(status);
            let refused = match refused.is_some_and(is_of_a_job) {
                true => answer_with("JobNotFoundOut", "application/problem+json", "There is no such job"),
                false => error(dialect, "The request was refused"),
            };
            operation.responses.responses.insert(status.clone(), refused);
        }
        for (status, description) in [
            ("429", "Too many requests; Retry-After says when to try again"),
            ("500", "The service failed"),
            ("503", "Not now; Retry-After says when to try again"),
        ] {
            add_error(operation, status, dialect, description);
        }
        let has_query = operation.parameters.iter().flatten().any(|parameter| {
            matches!(parameter, RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query)
        });
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            body.content.values_mut().for_each(leave_null_out);
        }
        if operation.request_body.is_some() {
            add_error(operation, "400", dialect, "The body cannot be read");
            add_error(operation, "413", dialect, "The body is too large");
        }
        if has_query && has_plain_errors {
            add_error(operation, "400", dialect, "A query parameter is not valid");
        }
    }
    // Clients of InfluxDB send no keys with their queries.
    if is_post
        && (dialect != Dialect::Influx || policy.repetition == Repetition::ByBody)
        && let Some(post) = &mut item.post
    {
        let key = ObjectBuilder::new().min_length(Some(1)).max_length(Some(255)).pattern(Some("^[!-~]+$"));
        add_header(
            post,
            "Idempotency-Key",
            "The same key makes a repetition the same request, for 24 h",
            key,
        );
        add_error(post, "400", dialect, "Idempotency-Key is not 1 to 255 visible ASCII characters");
        add_error(post, "413", dialect, "The body is too large");
        add_error(post, "422", dialect, "The Idempotency-Key was used for another request");
    }
}

/// A body may be absent, but it is never `null`.
fn leave_null_out(content: &mut RefOr<Content>) {
    if let RefOr::T(content) = content
        && let Some(RefOr::T(Schema::OneOf(choice))) = &content.schema
        && let Some(schema) = choice.items.iter().find(|item| matches!(item, RefOr::Ref(_)))
    {
        content.schema = Some(schema.clone());
    }
}

/// Whether it says of a job that it is not there, in a shape of its own.
fn is_of_a_job(response: &RefOr<Response>) -> bool {
    let RefOr::T(response) = response else { return false };
    response.content.values().any(|content| {
        let RefOr::T(Content { schema: Some(RefOr::Ref(schema)), .. }) = content else { return false };
        schema.ref_location.ends_with("/JobNotFoundOut")
    })
}

fn add_header(operation: &mut Operation, name: &str, description: &str, schema: ObjectBuilder) {
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema.schema_type(Type::String)))
        .build();
    operation.parameters.get_or_insert_default().push(RefOr::<Parameter>::from(parameter));
}

fn add_error(operation: &mut Operation, status: &str, dialect: Dialect, description: &str) {
    let responses = &mut operation.responses.responses;
    responses.entry(status.to_owned()).or_insert_with(|| error(dialect, description));
}

fn error(dialect: Dialect, description: &str) -> RefOr<Response> {
    let (media, schema) = match dialect {
        Dialect::Service1 => ("application/json", "ErrorOut"),
        Dialect::Influx => ("application/json", "InfluxErrorOut"),
        Dialect::Problem => ("application/problem+json", "ProblemOut"),
    };
    answer_with(schema, media, description)
}

fn answer_with(schema: &str, media: &str, description: &str) -> RefOr<Response> {
    let content = Content::new(Some(Ref::from_schema_name(schema)));
    ResponseBuilder::new().description(description).content(media, content).build().into()
}

/// The description of the whole interface, after OpenAPI 3.1.
pub fn openapi() -> Value {
    finish(described_routes().split().2)
}

/// The policies of all routes: for checks that cover each of them.
pub fn policies() -> Vec<RoutePolicy> {
    ROUTES.1.list()
}

/// Adds to `document` what follows from one place.
fn finish(document: utoipa::openapi::OpenApi) -> Value {
    let Ok(mut document) = serde_json::to_value(document) else { return Value::Null };
    add_word_sets(&mut document);
    share_entries(&mut document);
    fields::describe(&mut document);
    limits::describe(&mut document);
    let texts = success_texts(&document);
    walk::operations(&mut document, |mut operation| {
        describe_bytes(&mut operation);
        describe_successes(&mut operation, &texts);
        errors::describe(&mut operation);
        examples::show(&mut operation);
    });
    document
}

/// Adds the sets of words that only parameters use, which are not collected by themselves.
fn add_word_sets(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    for (name, schema) in crate::words::all() {
        if let Ok(schema) = serde_json::to_value(schema) {
            schemas.entry(name).or_insert(schema);
        }
    }
}

/// Refers to the entries of pages by their names; they stand in each page in full otherwise.
fn share_entries(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let pages: Vec<String> = schemas.keys().filter(|name| name.starts_with("Page_")).cloned().collect();
    for page in pages {
        let entry = page.trim_start_matches("Page_").to_owned();
        let reference = serde_json::json!({"$ref": format!("#/components/schemas/{entry}")});
        let items = std::mem::replace(&mut schemas[&page]["properties"]["data"]["items"], reference);
        schemas.entry(entry).or_insert(items);
    }
}

/// The description of each schema.
fn success_texts(document: &Value) -> Map<String, Value> {
    let schemas = document["components"]["schemas"].as_object().into_iter().flatten();
    schemas.map(|(name, schema)| (name.clone(), schema["description"].clone())).collect()
}

/// Describes bodies of bytes as binary; from their type they are arrays of numbers.
fn describe_bytes(operation: &mut walk::Operation<'_>) {
    let describe = |body: &mut Value| {
        for (media, content) in body.get_mut("content").and_then(Value::as_object_mut).into_iter().flatten() {
            if BYTES.contains(&media.as_str()) {
                content["schema"] = serde_json::json!({"type": "string", "format": "binary"});
            }
        }
    };
    operation.value.get_mut("requestBody").into_iter().for_each(describe);
    let answers = operation.value.get_mut("responses").and_then(Value::as_object_mut);
    answers.into_iter().flatten().map(|(_, answer)| answer).for_each(describe);
}

/// Describes answers without a text of their own by what they carry.
fn describe_successes(operation: &mut walk::Operation<'_>, texts: &Map<String, Value>) {
    let summary = operation.value["summary"].clone();
    for (status, answer) in operation.value["responses"].as_object_mut().into_iter().flatten() {
        if answer["description"].as_str().is_some_and(|text| !text.is_empty()) {
            continue;
        }
        let mut schemas =
            answer["content"].as_object().into_iter().flatten().map(|(_, media)| &media["schema"]);
        let named = |schema: &Value| {
            let name = schema["$ref"].as_str().or(schema["items"]["$ref"].as_str())?.rsplit('/').next()?;
            texts.get(name).cloned()
        };
        answer["description"] = match (status.as_str(), schemas.find_map(named)) {
            ("204", _) => Value::from("Done; there is nothing to show."),
            (_, Some(text)) => text,
            (_, None) => summary.clone(),
        };
    }
}

/// The interactive page at `/api/docs`, and the description at `/api/openapi.json`. Works without a network.
///
/// It is made when it is first asked for, and only its text is kept: as objects it takes more memory than all else that an
/// idle gateway holds.
pub(crate) fn pages() -> Router<Services> {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi().to_string()));
    let description = get(async || ([(CONTENT_TYPE, "application/json")], TEXT.clone()));
    Router::new()
        .route(DESCRIPTION, description.clone())
        .route("/api/v1/openapi.json", description)
        .merge(page::page())
}
