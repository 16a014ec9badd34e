use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use signalbox_domain::{kernel::AgentId, transfer::AgentRef};
use signalbox_projections::transfer::queries;
use sqlx::PgPool;

use crate::http::problem::Problem;

/// Integers remembered at most; then all are forgotten.
const MAX_KNOWN: usize = 100_000;

/// Which agent an integer stands for. An integer is given to one agent and never to another, so what was known once
/// holds; whether the agent still exists is decided where the event is appended.
#[derive(Debug)]
pub(crate) struct AgentKeys {
    pool: PgPool,
    known: Mutex<HashMap<i64, AgentId>>,
}

impl AgentKeys {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, known: Mutex::default() }
    }

    /// The agents with these integers, in this order; the problem names the field that names none.
    pub(crate) async fn resolve<const N: usize>(
        &self,
        fields: [(&str, i64); N],
    ) -> Result<[AgentRef; N], Problem> {
        self.learn(&fields.map(|(_, number)| number)).await?;
        let known = self.known();
        let mut found = Vec::with_capacity(N);
        for (field, number) in fields {
            let id = known.get(&number).ok_or_else(|| Problem::field(field, "names no agent"))?;
            found.push(AgentRef { id: *id, number });
        }
        found.try_into().map_err(|_| Problem::internal(&"a resolved agent was lost"))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<i64, AgentId>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns of agents that are not known yet.
    async fn learn(&self, numbers: &[i64]) -> Result<(), Problem> {
        let missing: Vec<_> = {
            let known = self.known();
            numbers.iter().copied().filter(|number| !known.contains_key(number)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let found = queries::agent_keys(&self.pool, &missing).await?;
        let mut known = self.known();
        if known.len() + found.len() > MAX_KNOWN {
            known.clear();
        }
        known.extend(found.into_iter().map(|(number, id)| (number, AgentId(id))));
        Ok(())
    }
}
