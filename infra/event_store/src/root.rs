use cqrs_es::{Aggregate, event_sink::EventSink};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use signalbox_domain::kernel::{Decider, Rejection};

/// A [`Decider`] as an aggregate of `cqrs-es`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent, bound = "D: Serialize + DeserializeOwned")]
pub(crate) struct Root<D: Decider>(pub(crate) D);

impl<D: Decider> Aggregate for Root<D> {
    const TYPE: &'static str = D::TYPE;
    type Command = D::Command;
    type Event = D::Event;
    type Error = Rejection;
    type Services = ();

    async fn handle(&mut self, command: D::Command, _: &(), sink: &EventSink<Self>) -> Result<(), Rejection> {
        for event in self.0.decide(command)? {
            sink.write(event, self).await;
        }
        Ok(())
    }

    fn apply(&mut self, event: D::Event) {
        self.0.evolve(event);
    }
}
