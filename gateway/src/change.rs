//! A request that changes one resource, as far as all of them are alike.

use std::marker::PhantomData;

use axum::{
    extract::{FromRef, FromRequestParts},
    http::request::Parts,
};
use signalbox_domain::kernel::{Decider, Rejection};
use uuid::Uuid;

use crate::{
    answer::Written,
    auth::{Admin, CurrentUser, Writer},
    context::RequestContext,
    extract::{IfMatch, Text, Versions},
    problem::Problem,
    resource::{Found, find},
    services::{commands::Commands, replica::Database},
    state::Services,
};

/// A request of a user who is `By` to change the resource `{id}`. Credential, version and id are judged in this order, before
/// the body.
pub(crate) struct Change<By> {
    pub(crate) database: Database,
    pub(crate) commands: Commands,
    pub(crate) user: CurrentUser,
    /// The versions of which it must have one; `None` for any.
    pub(crate) versions: Option<Versions>,
    pub(crate) id: String,
    pub(crate) context: RequestContext,
    by: PhantomData<By>,
}

impl<By> FromRequestParts<Services> for Change<By>
where
    By: FromRequestParts<Services, Rejection = Problem> + Into<CurrentUser>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        let user = By::from_request_parts(parts, state).await?.into();
        let IfMatch(versions) = IfMatch::from_request_parts(parts, state).await?;
        let Text(id) = Text::from_request_parts(parts, state).await?;
        let Ok(context) = RequestContext::from_request_parts(parts, state).await;
        let (database, commands) = (Database::from_ref(state), Commands::from_ref(state));
        Ok(Self { database, commands, user, versions, id, context, by: PhantomData })
    }
}

impl From<Writer> for CurrentUser {
    fn from(Writer(user): Writer) -> Self {
        user
    }
}

impl From<Admin> for CurrentUser {
    fn from(Admin(user): Admin) -> Self {
        user
    }
}

impl<By> Change<By> {
    /// The resource as it is.
    pub(crate) async fn find<R: Found>(&self) -> Result<R, Problem> {
        find(&self.database, &self.id).await
    }

    /// Sends `command` for the resource with this key, by the request's kind `purpose`.
    pub(crate) async fn write<D: Decider>(
        &self,
        key: impl Into<Uuid>,
        purpose: &str,
        command: &D::Command,
    ) -> Result<Written, Rejection> {
        let metadata = self.context.metadata(self.user.actor(), purpose);
        self.commands.write::<D>(key.into(), self.versions.clone(), &metadata, command).await
    }
}
