use sha2::{Digest, Sha256};
use signalbox_clock::Clock;
use signalbox_database::SharedServerClock;
use signalbox_domain::kernel::{Actor, AgentId, Sha256Hex};
use signalbox_projections::transfer::{AgentTokenRow, queries};
use sqlx::PgPool;
use uuid::Uuid;

use super::{answers::Answers, token_uses::TokenUses};

/// An agent with a valid token.
#[derive(Debug, Clone)]
pub(crate) struct AgentAuth {
    pub(crate) agent: AgentId,
    pub(crate) number: i64,
    pub(crate) token: Uuid,
}

impl AgentAuth {
    pub(crate) fn actor(&self) -> Actor {
        Actor::Agent(self.agent)
    }
}

/// The tokens that this gateway has seen lately, and which of them were used.
#[derive(Debug)]
pub(crate) struct AgentTokens {
    pool: PgPool,
    clock: Clock,
    server_clock: SharedServerClock,
    known: Answers<AgentAuth>,
    used: TokenUses,
}

impl AgentTokens {
    pub(crate) fn new(pool: PgPool, clock: Clock, server_clock: SharedServerClock) -> Self {
        Self { pool, clock, server_clock, known: Answers::default(), used: TokenUses::default() }
    }

    /// The agent whose token `secret` is, unless it is void.
    pub(crate) async fn agent(&self, secret: &str) -> Result<Option<AgentAuth>, sqlx::Error> {
        let hash = hash_secret(secret).to_string();
        let known = match self.known.recall(&hash, self.clock.monotonic()) {
            Some(known) => known,
            None => self.look_up(hash).await?,
        };
        if let Some(agent) = &known {
            self.used.note(agent.token, self.server_clock.now());
        }
        Ok(known)
    }

    /// Whether the database has to be asked about `secret`, and it may be made up.
    pub(crate) fn is_stranger(&self, secret: &str) -> bool {
        self.known.is_stranger(&hash_secret(secret).to_string(), self.clock.monotonic())
    }

    /// Forgets what it has seen: a token was made or revoked.
    pub(crate) fn forget(&self) {
        self.known.clear();
    }

    /// Tokens in use, and when they were used last.
    pub(crate) fn used(&self) -> &TokenUses {
        &self.used
    }

    async fn look_up(&self, hash: String) -> Result<Option<AgentAuth>, sqlx::Error> {
        let begun = self.clock.monotonic();
        let found = queries::live_agent_token(&self.pool, &hash, self.server_clock.now()).await?;
        let agent = found.map(|row: AgentTokenRow| AgentAuth {
            agent: row.agent_id,
            number: row.agent_number,
            token: row.id.0,
        });
        self.known.remember(hash, agent.clone(), begun);
        Ok(agent)
    }
}

/// The stored hash of a token. Its 256 bits of randomness need no salt.
pub(crate) fn hash_secret(secret: &str) -> Sha256Hex {
    Sha256Hex::from_bytes(&Sha256::digest(secret.as_bytes()))
}
