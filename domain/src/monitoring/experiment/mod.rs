mod events;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{ExperimentCommand, ExperimentEvent, ExperimentEventKind};
use crate::kernel::{Claim, ClaimOp, Decider, Rejection, UserId, required_text};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;

/// A named span of time, whose datapoints belong together. One runs at a time.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Experiment {
    present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    name: String,
    running: bool,
}

/// A new experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewExperiment {
    pub owner: UserId,
    /// Unique name, 1–255 characters.
    pub name: String,
}

const NAME_CLAIM: &str = "experiment.name";
/// There is one key of this kind, which the running experiment holds.
const RUNNING_CLAIM: &str = "experiment.running";
const RUNNING_KEY: &str = "the one";

impl Decider for Experiment {
    const TYPE: &'static str = "experiment";
    const CONTEXT: &'static str = "monitoring";
    const STATE_VERSION: i32 = 1;
    type Command = ExperimentCommand;
    type Event = ExperimentEvent;

    fn decide(&self, command: ExperimentCommand) -> Result<Vec<ExperimentEvent>, Rejection> {
        let Some(present) = &self.present else {
            return match command {
                ExperimentCommand::Start(new) => {
                    let name = required_text("name", &new.name, MAX_NAME)?;
                    Ok(vec![ExperimentEvent::ExperimentStarted(NewExperiment { name, ..new })])
                }
                _ => Err(Rejection::not_found("Experiment")),
            };
        };
        match command {
            ExperimentCommand::Start(_) => {
                Err(Rejection::conflict("experiment_exists", "This experiment exists already."))
            }
            ExperimentCommand::Rename { name } => {
                let (from, to) = (present.name.clone(), required_text("name", &name, MAX_NAME)?);
                Ok(if from == to {
                    Vec::new()
                } else {
                    vec![ExperimentEvent::ExperimentRenamed { from, to }]
                })
            }
            ExperimentCommand::Stop if present.running => Ok(vec![ExperimentEvent::ExperimentStopped]),
            ExperimentCommand::Stop => {
                Err(Rejection::conflict("experiment_stopped", "The experiment has been stopped already."))
            }
            ExperimentCommand::Delete => {
                let stop = present.running.then_some(ExperimentEvent::ExperimentStopped);
                let delete = ExperimentEvent::ExperimentDeleted { name: present.name.clone() };
                Ok(stop.into_iter().chain([delete]).collect())
            }
        }
    }

    fn evolve(&mut self, event: ExperimentEvent) {
        match (event, &mut self.present) {
            (ExperimentEvent::ExperimentStarted(new), present) => {
                *present = Some(Present { name: new.name, running: true });
            }
            (ExperimentEvent::ExperimentRenamed { to, .. }, Some(present)) => present.name = to,
            (ExperimentEvent::ExperimentStopped, Some(present)) => present.running = false,
            (ExperimentEvent::ExperimentDeleted { .. }, present) => *present = None,
            (_, None) => {}
        }
    }

    fn claim_rejection(_op: ClaimOp, kind: &str) -> Rejection {
        match kind {
            NAME_CLAIM => Rejection::conflict(
                "experiment_name_taken",
                "Another experiment has this name: choose another one.",
            ),
            _ => Rejection::conflict("experiment_running", "Another experiment is running: stop it first."),
        }
    }

    fn claims(_id: Uuid, event: &ExperimentEvent) -> Vec<Claim> {
        let name = |op, name: &str| Claim::new(op, NAME_CLAIM, name);
        let running = |op| Claim::new(op, RUNNING_CLAIM, RUNNING_KEY);
        match event {
            ExperimentEvent::ExperimentStarted(new) => {
                vec![name(ClaimOp::Take, &new.name), running(ClaimOp::Take)]
            }
            ExperimentEvent::ExperimentRenamed { from, to } => {
                vec![name(ClaimOp::Release, from), name(ClaimOp::Take, to)]
            }
            ExperimentEvent::ExperimentStopped => vec![running(ClaimOp::Release)],
            ExperimentEvent::ExperimentDeleted { name: old } => vec![name(ClaimOp::Release, old)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewExperiment {
        NewExperiment { owner: UserId(Uuid::nil()), name: name.to_owned() }
    }

    fn after(events: impl IntoIterator<Item = ExperimentEvent>) -> Experiment {
        let mut experiment = Experiment::default();
        experiment.evolve(ExperimentEvent::ExperimentStarted(new("burn-in")));
        events.into_iter().for_each(|event| experiment.evolve(event));
        experiment
    }

    #[test]
    fn names_are_trimmed_required_and_bounded() {
        let started = Experiment::default().decide(ExperimentCommand::Start(new(" burn-in "))).unwrap();
        assert_eq!(started, vec![ExperimentEvent::ExperimentStarted(new("burn-in"))]);
        for name in ["", "  ", "a\0b", &"x".repeat(256)] {
            let start = Experiment::default().decide(ExperimentCommand::Start(new(name)));
            let rename = after([]).decide(ExperimentCommand::Rename { name: name.to_owned() });
            assert!(start.is_err() && rename.is_err(), "{name:?}");
        }
    }

    #[test]
    fn it_is_stopped_once() {
        assert_eq!(after([]).decide(ExperimentCommand::Stop), Ok(vec![ExperimentEvent::ExperimentStopped]));
        let refused =
            after([ExperimentEvent::ExperimentStopped]).decide(ExperimentCommand::Stop).unwrap_err();
        assert_eq!(refused.code, "experiment_stopped");
    }

    #[test]
    fn the_end_of_its_time_lets_another_one_run() {
        let free = Claim::new(ClaimOp::Release, RUNNING_CLAIM, RUNNING_KEY);
        let claims = |events: Vec<ExperimentEvent>| -> Vec<Claim> {
            events.iter().flat_map(|event| Experiment::claims(Uuid::nil(), event)).collect()
        };
        assert_eq!(claims(after([]).decide(ExperimentCommand::Stop).unwrap()), vec![free.clone()]);
        assert!(claims(after([]).decide(ExperimentCommand::Delete).unwrap()).contains(&free));
        // A stopped experiment has released its key, and must not release the key of its successor.
        let stopped = after([ExperimentEvent::ExperimentStopped]);
        assert!(!claims(stopped.decide(ExperimentCommand::Delete).unwrap()).contains(&free));
    }

    #[test]
    fn what_is_deleted_is_not_found() {
        let gone = after([ExperimentEvent::ExperimentDeleted { name: "burn-in".into() }]);
        for command in [
            ExperimentCommand::Stop,
            ExperimentCommand::Delete,
            ExperimentCommand::Rename { name: "x".into() },
        ] {
            assert!(gone.decide(command).is_err());
        }
        assert_eq!(after([]).decide(ExperimentCommand::Rename { name: "burn-in".into() }), Ok(vec![]));
    }
}
