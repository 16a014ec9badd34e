use signalbox_domain::{identity::Role, kernel::UserId};
use signalbox_event_store::ChangedStream;
use uuid::Uuid;

use super::CHANGED_RESOURCES;
use crate::services::auth::CurrentUser;

/// The users that may see a resource: those that its `GET` and its list show it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Everyone,
    Admins,
    Owner(UserId),
    OwnerAndAdmins(UserId),
    Hidden,
}

impl Audience {
    /// Anything that is not listed here is not shown.
    pub(super) fn of(stream: &ChangedStream) -> Self {
        let owner = stream.owner;
        match (stream.aggregate_type.as_str(), owner) {
            (
                "agent" | "agent_token" | "alarm" | "channel" | "experiment" | "log_entry"
                | "plugin_instance" | "plugin_package",
                _,
            ) => Self::Everyone,
            ("contact" | "delivery" | "firmware" | "rule" | "webhook", _) => Self::Admins,
            ("user", _) => Self::OwnerAndAdmins(UserId(stream.aggregate_id)),
            ("api_token", Some(owner)) => Self::OwnerAndAdmins(owner),
            ("dashboard", _) if stream.is_shared => Self::Everyone,
            ("dashboard" | "extraction_job" | "job" | "transfer", Some(owner)) => Self::Owner(owner),
            _ => Self::Hidden,
        }
    }

    pub(crate) fn includes(self, user: &CurrentUser) -> bool {
        match self {
            Self::Everyone => true,
            Self::Admins => user.role == Role::Admin,
            Self::Owner(owner) => user.id == owner,
            Self::OwnerAndAdmins(owner) => user.id == owner || user.role == Role::Admin,
            Self::Hidden => false,
        }
    }
}

/// The type and id by which the routes show a changed stream.
pub(super) fn name(stream: &ChangedStream) -> Option<(&'static str, String)> {
    let kind = CHANGED_RESOURCES.iter().copied().find(|kind| *kind == stream.aggregate_type)?;
    let key = |id: Uuid| Some((kind, id.to_string()));
    match kind {
        "agent" | "agent_token" | "job" | "transfer" => Some((kind, stream.number?.to_string())),
        // Deliveries are listed below their webhook, and messages below their contact. A callback of one extraction job has none.
        "delivery" => key(stream.receiver?),
        _ => key(stream.aggregate_id),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use signalbox_projections::context_of;

    use super::*;
    use crate::services::auth::Credential;

    const SHOWN_BY_NO_ROUTE: [&str; 3] = ["health", "reading", "session"];

    fn stream(kind: &str, owner: Option<UserId>) -> ChangedStream {
        ChangedStream {
            position: 1,
            aggregate_type: kind.to_owned(),
            aggregate_id: Uuid::from_u128(9),
            version: 1,
            number: Some(4),
            owner,
            receiver: None,
            is_shared: false,
        }
    }

    /// The golden files name every aggregate of the domain.
    #[test]
    fn every_aggregate_is_shown_or_listed_as_shown_by_no_route() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/event_store/tests/golden");
        let folders = fs::read_dir(golden).unwrap();
        let aggregates: BTreeSet<_> =
            folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect();
        let decided = CHANGED_RESOURCES.iter().copied().chain(SHOWN_BY_NO_ROUTE).map(str::to_owned);
        assert_eq!(decided.collect::<BTreeSet<_>>(), aggregates);
    }

    fn user(id: u128, role: Role) -> CurrentUser {
        CurrentUser {
            id: UserId(Uuid::from_u128(id)),
            credential: Credential::Session(Uuid::nil()),
            number: 1,
            email: String::new(),
            username: String::new(),
            role,
            controller: None,
        }
    }

    #[test]
    fn each_type_is_shown_to_those_its_routes_show_it_to() {
        let (viewer, other, admin) = (user(1, Role::Viewer), user(2, Role::Operator), user(3, Role::Admin));
        let own = Some(viewer.id);
        // Type; whether its owner, another user and an admin see it.
        let expected = [
            ("agent", [true, true, true]),
            ("agent_token", [true, true, true]),
            ("alarm", [true, true, true]),
            ("api_token", [true, false, true]),
            ("channel", [true, true, true]),
            ("contact", [false, false, true]),
            ("dashboard", [true, false, false]),
            ("delivery", [false, false, true]),
            ("experiment", [true, true, true]),
            ("extraction_job", [true, false, false]),
            ("firmware", [false, false, true]),
            ("job", [true, false, false]),
            ("log_entry", [true, true, true]),
            ("plugin_instance", [true, true, true]),
            ("plugin_package", [true, true, true]),
            ("rule", [false, false, true]),
            ("transfer", [true, false, false]),
            ("user", [false, false, true]),
            ("webhook", [false, false, true]),
        ];
        assert_eq!(expected.map(|(kind, _)| kind).as_slice(), CHANGED_RESOURCES.as_slice());
        for (kind, sees) in expected {
            let audience = Audience::of(&stream(kind, own));
            assert_eq!([&viewer, &other, &admin].map(|user| audience.includes(user)), sees, "{kind}");
            assert!(!context_of(kind).is_empty());
        }
        let shared = ChangedStream { is_shared: true, ..stream("dashboard", own) };
        assert!(Audience::of(&shared).includes(&other));
        assert_eq!(Audience::of(&stream("extraction_job", None)), Audience::Hidden);
        assert_eq!(Audience::of(&stream("session", own)), Audience::Hidden);
        assert!(Audience::of(&stream("user", None)).includes(&user(9, Role::Viewer)));
    }

    #[test]
    fn resources_are_named_as_in_their_address() {
        assert_eq!(name(&stream("transfer", None)), Some(("transfer", "4".to_owned())));
        let rule = Uuid::from_u128(9).to_string();
        assert_eq!(name(&stream("rule", None)), Some(("rule", rule)));
        assert_eq!(name(&stream("delivery", None)), None);
        assert_eq!(name(&stream("session", None)), None);
    }
}
