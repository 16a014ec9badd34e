use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use signalbox_domain::{kernel::AgentId, transfer::AgentRef};
use signalbox_projections::transfer::queries;

use crate::{problem::Problem, state::State as Gateway};

/// Integers remembered at most; then all are forgotten.
const MAX_KNOWN: usize = 100_000;

/// Which agent an integer stands for. An integer is given to one agent and never to another, so what was known once
/// holds; whether the agent still exists is decided where the event is appended.
#[derive(Debug, Default)]
pub(crate) struct AgentKeys(Mutex<HashMap<i64, AgentId>>);

impl AgentKeys {
    fn known(&self) -> MutexGuard<'_, HashMap<i64, AgentId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns of agents that are not known yet.
    async fn learn(&self, state: &Gateway, numbers: &[i64]) -> Result<(), Problem> {
        let missing: Vec<_> = {
            let known = self.known();
            numbers.iter().copied().filter(|number| !known.contains_key(number)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let found = queries::agent_keys(&state.pool, &missing).await?;
        let mut known = self.known();
        if known.len() + found.len() > MAX_KNOWN {
            known.clear();
        }
        known.extend(found.into_iter().map(|(number, id)| (number, AgentId(id))));
        Ok(())
    }
}

/// The agents with these integers, in this order; the problem names the field that names none.
pub(super) async fn resolve<const N: usize>(
    state: &Gateway,
    fields: [(&str, i64); N],
) -> Result<[AgentRef; N], Problem> {
    state.agent_keys.learn(state, &fields.map(|(_, number)| number)).await?;
    let known = state.agent_keys.known();
    let mut found = Vec::with_capacity(N);
    for (field, number) in fields {
        let id = known.get(&number).ok_or_else(|| Problem::field(field, "names no agent"))?;
        found.push(AgentRef { id: *id, number });
    }
    found.try_into().map_err(|_| Problem::internal(&"a resolved agent was lost"))
}
