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
    known: Known,
}

impl AgentKeys {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, known: Known { ids: Mutex::default(), most: MAX_KNOWN } }
    }

    /// The agents with these integers, in this order; the problem names the field that names none.
    pub(crate) async fn resolve<const N: usize>(
        &self,
        fields: [(&str, i64); N],
    ) -> Result<[AgentRef; N], Problem> {
        let numbers = fields.map(|(_, number)| number);
        let ids = self.known.ids(&numbers, async |missing| queries::agent_keys(&self.pool, missing).await);
        let ids = ids.await?;
        let mut found = Vec::with_capacity(N);
        for (field, number) in fields {
            let id = ids.get(&number).ok_or_else(|| Problem::field(field, "names no agent"))?;
            found.push(AgentRef { id: *id, number });
        }
        found.try_into().map_err(|_| Problem::internal(&"a resolved agent was lost"))
    }
}

/// Integers that have been looked up.
#[derive(Debug)]
struct Known {
    ids: Mutex<HashMap<i64, AgentId>>,
    most: usize,
}

impl Known {
    /// Those of `numbers` that stand for an agent. Each is asked for once: other requests may make all be forgotten meanwhile.
    async fn ids<E>(
        &self,
        numbers: &[i64],
        look_up: impl AsyncFnOnce(&[i64]) -> Result<Vec<(i64, AgentId)>, E>,
    ) -> Result<HashMap<i64, AgentId>, E> {
        let mut ids: HashMap<_, _> = {
            let known = self.lock();
            numbers.iter().filter_map(|number| Some((*number, *known.get(number)?))).collect()
        };
        let missing: Vec<_> = numbers.iter().copied().filter(|number| !ids.contains_key(number)).collect();
        if missing.is_empty() {
            return Ok(ids);
        }
        let found = look_up(&missing).await?;
        let mut known = self.lock();
        if known.len() + found.len() > self.most {
            known.clear();
        }
        known.extend(found.iter().copied());
        drop(known);
        ids.extend(found);
        Ok(ids)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, AgentId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use uuid::Uuid;

    use super::*;

    fn agent(number: i64) -> (i64, AgentId) {
        (number, AgentId(Uuid::from_u128(number.unsigned_abs().into())))
    }

    #[tokio::test]
    async fn an_agent_that_is_forgotten_meanwhile_is_still_named() {
        let known = Known { ids: Mutex::default(), most: 2 };
        let all = async |missing: &[i64]| Ok::<_, Infallible>(missing.iter().copied().map(agent).collect());
        known.ids(&[1, 2], all).await.unwrap();
        let expected: HashMap<_, _> = [1, 3].map(agent).into();
        // There is no room for the third one, so that the first one is forgotten.
        let only_third = async |missing: &[i64]| {
            assert_eq!(missing, [3]);
            Ok::<_, Infallible>(vec![agent(3)])
        };
        assert_eq!(known.ids(&[1, 3], only_third).await.unwrap(), expected);
        assert_eq!(known.ids(&[1, 3], all).await.unwrap(), expected);
        let none = async |_: &[i64]| Ok::<_, Infallible>(Vec::new());
        assert!(known.ids(&[4], none).await.unwrap().is_empty());
    }
}
