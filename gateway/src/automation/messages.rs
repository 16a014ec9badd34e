//! Messages to contacts: a test, those that were sent, and their repetition.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use signalbox_database::SharedServerClock;
use signalbox_domain::{
    automation::{DeliveryBatch, DeliveryBatchCommand, MessageDelivery, NewDelivery},
    kernel::DeliveryId,
};
use signalbox_projections::automation::{
    ContactRow,
    deliveries::DeliveryRow,
    messages::{MessageBody, TEST_MESSAGE},
    past_delivery,
};

use super::deliveries::{
    DeliveryDetailOut, DeliveryOut, DeliveryParams, delivered_again, detailed, find_in, listed,
};
use crate::{
    answer::{self, Page},
    auth::Admin,
    context::RequestContext,
    extract::{EnvelopeParams, Params, Sort, Text, Texts, key},
    past::{AsOf, AtParams, there},
    problem::{Problem, ProblemOut},
    resource::after_write,
    resource::find,
    services::{commands::Commands, replica::Database},
};

/// Send a contact a message that only shows that messages arrive. It is not grouped with others, and quiet hours do not hold it
/// back.
#[utoipa::path(post, path = "/api/v1/contacts/{id}/test", tag = "contacts", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "test_contact",
    responses((status = 201, body = DeliveryOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut)))]
pub(crate) async fn test(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(server_clock): State<SharedServerClock>,
    Admin(user): Admin,
    Text(id): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let contact = find::<ContactRow>(&database, &id).await?;
    let event_id = context.resource;
    let body = MessageBody::test(event_id, contact.id, contact.name, server_clock.now());
    let id = DeliveryId(event_id);
    let delivery = NewDelivery {
        id,
        event_id,
        event_type: TEST_MESSAGE.to_owned(),
        body: serde_json::to_string(&body).map_err(|error| Problem::internal(&error))?,
    };
    let message = MessageDelivery { contact: contact.id, delivery, alarms: Vec::new() };
    let receiver = message.receiver();
    let metadata = context.metadata(user.actor(), "test contact");
    let command = DeliveryBatchCommand::QueueMessage(message);
    let written = commands.write::<DeliveryBatch>(event_id, None, &metadata, &command).await?;
    let shown = || async {
        match written.unseen {
            None => find_in(&database, receiver, id).await,
            Some(at) => there("Delivery", past_delivery(&database.primary, event_id, id, at).await?),
        }
    };
    let row = after_write(shown).await?;
    let location = format!("/api/v1/contacts/{}/messages/{}", contact.id, row.id);
    Ok(answer::written(written, StatusCode::CREATED, Some(&location), &DeliveryOut::from(&row)))
}

/// List the messages to a contact, newest first.
#[utoipa::path(get, path = "/api/v1/contacts/{id}/messages", tag = "contacts", security(("jwt" = [])), params(("id" = String, Path,), EnvelopeParams, Sort<DeliveryRow>, DeliveryParams), operation_id = "list_messages",
    responses((status = 200, body = Page<DeliveryOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<DeliveryRow>,
    Params(params): Params<DeliveryParams>,
) -> Result<Json<Page<DeliveryOut>>, Problem> {
    let page = envelope.page()?;
    let contact = find::<ContactRow>(&database, &id).await?;
    listed(&database, contact.id.as_receiver(), params, (sort.order(), page), envelope).await
}

/// One message, with its body and its attempts. The messages of a contact that was deleted are gone, with their past.
#[utoipa::path(get, path = "/api/v1/contacts/{id}/messages/{mid}", tag = "contacts", security(("jwt" = [])), params(("id" = String, Path,), ("mid" = String, Path,), AtParams), operation_id = "get_message",
    responses((status = 200, body = DeliveryDetailOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    path: Texts,
    AsOf(at): AsOf,
) -> Result<Json<DeliveryDetailOut>, Problem> {
    let row = find_delivery(&database, &path).await?;
    detailed(&database, row, at).await
}

/// Send a message again that was delivered or given up, with attempts of its own as many as at first.
#[utoipa::path(post, path = "/api/v1/contacts/{id}/messages/{mid}/redeliver", tag = "contacts", security(("jwt" = [])), params(("id" = String, Path,), ("mid" = String, Path,)),
    operation_id = "redeliver_message",
    responses((status = 200, body = DeliveryOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut)))]
pub(crate) async fn redeliver(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    path: Texts,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find_delivery(&database, &path).await?;
    delivered_again(&database, &commands, row, context.metadata(user.actor(), "redeliver message")).await
}

async fn find_delivery(database: &Database, Texts(contact, id): &Texts) -> Result<DeliveryRow, Problem> {
    let contact = find::<ContactRow>(database, contact).await?;
    find_in(database, contact.id.as_receiver(), key("Delivery", id)?.into()).await
}
