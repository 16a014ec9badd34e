use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{AgentId, UserId};

/// The originator of an event. Written to the log as `user:<id>`, `agent:<id>` or `system:<part>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Actor {
    /// A person, by session or API token.
    User(UserId),
    /// A file agent, by its token.
    Agent(AgentId),
    /// A part of Signalbox itself, e.g. `scheduler`.
    System(String),
}

impl Actor {
    /// The part `name` of Signalbox itself.
    pub fn system(name: &str) -> Self {
        Self::System(name.to_owned())
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(f, "user:{id}"),
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::System(name) => write!(f, "system:{name}"),
        }
    }
}

/// A text that names no actor.
#[derive(Debug, thiserror::Error)]
#[error("not an actor: expected user:<id>, agent:<id> or system:<part>")]
pub struct InvalidActor;

impl FromStr for Actor {
    type Err = InvalidActor;

    fn from_str(text: &str) -> Result<Self, InvalidActor> {
        match text.split_once(':') {
            Some(("user", id)) => id.parse().map(Self::User).map_err(|_| InvalidActor),
            Some(("agent", id)) => id.parse().map(Self::Agent).map_err(|_| InvalidActor),
            Some(("system", name)) => Ok(Self::system(name)),
            _ => Err(InvalidActor),
        }
    }
}

impl TryFrom<String> for Actor {
    type Error = InvalidActor;

    fn try_from(text: String) -> Result<Self, InvalidActor> {
        text.parse()
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> Self {
        actor.to_string()
    }
}
