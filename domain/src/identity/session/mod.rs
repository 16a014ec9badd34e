mod events;

use serde::{Deserialize, Serialize};

pub use self::events::{SessionCommand, SessionEvent, SessionEventKind};
use crate::kernel::{Decider, Rejection, UserId};

/// One login and the JWTs that were renewed from it.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Session {
    user: Option<UserId>,
    ended: bool,
}

impl Decider for Session {
    const TYPE: &'static str = "session";
    const CONTEXT: &'static str = "identity";
    const STATE_VERSION: i32 = 1;
    type Command = SessionCommand;
    type Event = SessionEvent;

    fn decide(&self, command: SessionCommand) -> Result<Vec<SessionEvent>, Rejection> {
        match command {
            SessionCommand::Start { user, expires_at } if self.user.is_none() => {
                Ok(vec![SessionEvent::SessionStarted { user, expires_at }])
            }
            SessionCommand::Start { .. } => {
                Err(Rejection::conflict("session_exists", "This session exists already."))
            }
            SessionCommand::Renew { expires_at } if self.user.is_some() && !self.ended => {
                Ok(vec![SessionEvent::SessionRenewed { expires_at }])
            }
            SessionCommand::Renew { .. } => Err(Rejection::not_found("Session")),
            SessionCommand::End if self.user.is_some() && !self.ended => Ok(vec![SessionEvent::SessionEnded]),
            SessionCommand::End => Ok(Vec::new()),
        }
    }

    fn evolve(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::SessionStarted { user, .. } => self.user = Some(user),
            SessionEvent::SessionRenewed { .. } => {}
            SessionEvent::SessionEnded => self.ended = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn an_ended_session_is_not_renewed() {
        let mut session = Session::default();
        let expires_at = DateTime::UNIX_EPOCH;
        session.evolve(SessionEvent::SessionStarted { user: UserId(uuid::Uuid::nil()), expires_at });
        session.evolve(SessionEvent::SessionEnded);
        assert!(session.decide(SessionCommand::Renew { expires_at }).is_err());
        assert_eq!(session.decide(SessionCommand::End).unwrap(), vec![]);
    }
}
