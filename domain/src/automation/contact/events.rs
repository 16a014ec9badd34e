use serde::{Deserialize, Serialize};

use super::{ContactChanges, ContactSpec, NewContact};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ContactCommand {
    Create(NewContact),
    /// Change the fields that are present.
    Change(ContactChanges),
    /// Remove it; it is notified no more.
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContactEvent {
    ContactCreated(NewContact),
    ContactUpdated {
        from: ContactSpec,
        to: ContactSpec,
    },
    ContactDeleted {
        /// Its name, which is free again.
        name: String,
    },
}

event_kinds!(ContactEvent, ContactEventKind {
    ContactCreated = "contact_created", "1";
    ContactUpdated = "contact_updated", "1";
    ContactDeleted = "contact_deleted", "1";
});
