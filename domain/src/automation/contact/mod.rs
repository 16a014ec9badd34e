//! Contacts: the people and programs that are notified of alarms.

mod events;
mod spec;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{ContactCommand, ContactEvent, ContactEventKind};
pub use self::spec::{
    ChatFormat, ContactChanges, ContactKind, ContactSpec, Destination, DestinationChanges, MAX_CONTACT_NAME,
    MAX_MAIL_ADDRESS, SealedAddress,
};
use crate::kernel::{Claim, ClaimOp, ContactId, Decider, Rejection, UserId};

/// A new contact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewContact {
    pub owner: UserId,
    #[serde(flatten)]
    pub spec: ContactSpec,
}

/// A contact.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Contact {
    spec: Option<ContactSpec>,
}

const NAME_CLAIM: &str = "contact.name";
/// Others may require that the contact exists.
pub(in crate::automation) const CONTACT_CLAIM: &str = "contact";

/// The code of the refusal of a deletion, because rules name the contact.
pub const CONTACT_IN_USE: &str = "contact_in_use";

/// Name space of the claims that rules hold on a contact that they name; their ids are the keys.
pub fn rules_of_contact(contact: ContactId) -> String {
    format!("contact.rules:{contact}")
}

impl Decider for Contact {
    const TYPE: &'static str = "contact";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 1;
    type Command = ContactCommand;
    type Event = ContactEvent;

    fn decide(&self, command: ContactCommand) -> Result<Vec<ContactEvent>, Rejection> {
        match (command, &self.spec) {
            (ContactCommand::Create(new), None) => {
                let spec = new.spec.validate()?;
                Ok(vec![ContactEvent::ContactCreated(NewContact { spec, ..new })])
            }
            (ContactCommand::Create(_), Some(_)) => {
                Err(Rejection::conflict("contact_exists", "This contact exists already."))
            }
            (_, None) => Err(Rejection::not_found("Contact")),
            (ContactCommand::Change(changes), Some(from)) => {
                let (from, to) = (from.clone(), from.with(changes)?);
                Ok(if from == to { Vec::new() } else { vec![ContactEvent::ContactUpdated { from, to }] })
            }
            (ContactCommand::Delete, Some(spec)) => {
                Ok(vec![ContactEvent::ContactDeleted { name: spec.name.clone() }])
            }
        }
    }

    fn evolve(&mut self, event: ContactEvent) {
        match event {
            ContactEvent::ContactCreated(new) => self.spec = Some(new.spec),
            ContactEvent::ContactUpdated { to, .. } => self.spec = Some(to),
            ContactEvent::ContactDeleted { .. } => self.spec = None,
        }
    }

    fn claims(id: Uuid, event: &ContactEvent) -> Vec<Claim> {
        let name = |op, name: &str| Claim::new(op, NAME_CLAIM, name);
        let own = |op| Claim::new(op, CONTACT_CLAIM, id.to_string());
        match event {
            ContactEvent::ContactCreated(new) => {
                vec![name(ClaimOp::Take, &new.spec.name), own(ClaimOp::Take)]
            }
            ContactEvent::ContactUpdated { from, to } if from.name != to.name => {
                vec![name(ClaimOp::Release, &from.name), name(ClaimOp::Take, &to.name)]
            }
            ContactEvent::ContactUpdated { .. } => Vec::new(),
            ContactEvent::ContactDeleted { name: old } => {
                let no_rules = Claim::new(ClaimOp::RequireNone, rules_of_contact(ContactId(id)), "");
                vec![no_rules, name(ClaimOp::Release, old), own(ClaimOp::Release)]
            }
        }
    }

    fn claim_rejection(op: ClaimOp, _kind: &str) -> Rejection {
        if op == ClaimOp::RequireNone {
            let why = "Rules notify this contact: take it out of them, or delete them, first.";
            return Rejection::conflict(CONTACT_IN_USE, why);
        }
        Rejection::conflict("contact_name_taken", "Another contact has this name: choose another one.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> ContactSpec {
        let destination = Destination::Email { address: "ops@example.org".to_owned() };
        ContactSpec { name: name.to_owned(), destination, quiet_hours: None }
    }

    fn create(name: &str) -> ContactCommand {
        ContactCommand::Create(NewContact { owner: UserId(Uuid::nil()), spec: spec(name) })
    }

    /// The events of `command`, which the contact then has.
    fn run(contact: &mut Contact, command: ContactCommand) -> Result<Vec<ContactEvent>, Rejection> {
        let events = contact.decide(command)?;
        events.iter().for_each(|event| contact.evolve(event.clone()));
        Ok(events)
    }

    fn rename(name: &str) -> ContactCommand {
        ContactCommand::Change(ContactChanges { name: Some(name.to_owned()), ..ContactChanges::default() })
    }

    #[test]
    fn a_contact_is_created_trimmed_changed_and_deleted() {
        let mut contact = Contact::default();
        assert!(run(&mut contact, rename("night")).is_err());
        let created = NewContact { owner: UserId(Uuid::nil()), spec: spec("day") };
        assert_eq!(run(&mut contact, create(" day ")), Ok(vec![ContactEvent::ContactCreated(created)]));
        assert!(run(&mut contact, create("day")).is_err());
        assert_eq!(run(&mut contact, rename("day")), Ok(Vec::new()));
        let renamed = ContactEvent::ContactUpdated { from: spec("day"), to: spec("night") };
        assert_eq!(run(&mut contact, rename("night")), Ok(vec![renamed]));
        let deleted = ContactEvent::ContactDeleted { name: "night".to_owned() };
        assert_eq!(run(&mut contact, ContactCommand::Delete), Ok(vec![deleted]));
        assert!(run(&mut contact, ContactCommand::Delete).is_err());
    }

    #[test]
    fn a_name_is_free_when_its_contact_leaves_it() {
        let id = Uuid::from_u128(7);
        let ops = |event: &ContactEvent| -> Vec<_> {
            let claims = Contact::claims(id, event).into_iter();
            claims.map(|claim| format!("{claim:?}")).collect()
        };
        let renamed = ContactEvent::ContactUpdated { from: spec("day"), to: spec("night") };
        let texts = ops(&renamed);
        assert!(texts[0].contains("Release") && texts[0].contains("day"), "{texts:?}");
        assert!(texts[1].contains("Take") && texts[1].contains("night"), "{texts:?}");
        assert!(ops(&ContactEvent::ContactUpdated { from: spec("day"), to: spec("day") }).is_empty());
        let deleted = ops(&ContactEvent::ContactDeleted { name: "night".to_owned() });
        assert!(deleted[0].contains("RequireNone") && deleted[0].contains("contact.rules:"), "{deleted:?}");
        assert!(
            deleted[1..].iter().all(|text| text.contains("Release")) && deleted.len() == 3,
            "{deleted:?}"
        );
    }
}
