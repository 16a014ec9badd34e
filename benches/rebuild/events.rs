//! A log as it grows in use, written straight into the database: users and sessions, agents with tokens, jobs, and
//! runs of these jobs, of which many are in progress at the same time.

use sqlx::{Executor, PgPool};

/// Transfers in progress at the same time.
const CONCURRENT: u64 = 100;
/// Events of one transfer that moves a single file without a hitch.
const STEPS: [(&str, &str); 8] = [
    (
        "transfer_requested",
        "'number', n, 'owner', key('a', n % users), 'job', jsonb_build_object('id', key('d', n % jobs), 'number', n % jobs),
         'job_type', 'push', 'source_agent', agent(n % agents), 'destination_agent', agent((n + 1) % agents),
         'source_path', 'results/' || n || '.csv', 'destination_path', 'incoming/' || n || '.csv', 'filename', n || '.csv',
         'size', NULL, 'retry', jsonb_build_object('max_attempts', 3, 'backoff_seconds', 5), 'scheduled_for', NULL",
    ),
    ("transfer_dispatched", "'attempt', 1, 'leg', 'upload'"),
    ("transfer_progressed", "'leg', 'upload', 'bytes', 1000, 'total', 5000 + n"),
    ("files_staged", "'files', jsonb_build_array(jsonb_build_object('name', n || '.csv', 'size', 5000 + n, 'sha256', digest(n)))"),
    ("transfer_staged", "'files', 1, 'size', 5000 + n, 'sha256', digest(n)"),
    ("transfer_dispatched", "'attempt', 1, 'leg', 'download'"),
    ("transfer_progressed", "'leg', 'download', 'bytes', 1000, 'total', 5000 + n"),
    ("transfer_completed", "'proven', true"),
];

const FUNCTIONS: &str = "
    CREATE FUNCTION pg_temp.key(kind text, n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$ SELECT '01900000-0000-7' || kind || '00-8000-' || lpad(to_hex(n), 12, '0') $$;
    CREATE FUNCTION pg_temp.agent(n bigint) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
        $$ SELECT jsonb_build_object('id', pg_temp.key('c', n), 'number', n) $$;
    CREATE FUNCTION pg_temp.digest(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$ SELECT md5(n::text) || md5(n::text) $$;";

/// Writes about `count` events; returns how many.
pub async fn write(pool: &PgPool, count: u64) -> anyhow::Result<u64> {
    let mut log = Log { connection: pool.acquire().await?, position: 0, counts: Counts::of(count) };
    log.connection.execute(FUNCTIONS).await?;
    log.beginnings().await?;
    for (sequence, (event, payload)) in (1..).zip(STEPS) {
        log.step(sequence, event, payload).await?;
    }
    log.end().await
}

/// How many there are of each.
struct Counts {
    users: u64,
    sessions: u64,
    agents: u64,
    jobs: u64,
    transfers: u64,
}

impl Counts {
    fn of(events: u64) -> Self {
        let (users, sessions) = (events.div_ceil(1000), events.div_ceil(100));
        let (agents, jobs) = (events.div_ceil(5000) + 1, events.div_ceil(50));
        let others = users + sessions + 4 * agents + jobs;
        let transfers = events.saturating_sub(others) / STEPS.len() as u64 / CONCURRENT * CONCURRENT;
        Self { users, sessions, agents, jobs, transfers }
    }
}

struct Log {
    connection: sqlx::pool::PoolConnection<sqlx::Postgres>,
    position: u64,
    counts: Counts,
}

impl Log {
    /// The resources that exist before anything moves.
    async fn beginnings(&mut self) -> anyhow::Result<()> {
        let Counts { users, sessions, agents, jobs, .. } = self.counts;
        let user = "'number', n, 'email', 'user' || n || '@example.org', 'username', 'user' || n, 'role', 'operator',
                    'password_hash', '$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$' || digest(n)";
        self.one("user", 'a', 1, "user_created", user, users).await?;
        let session = "'user', key('a', n % users), 'expires_at', '2030-01-01T00:00:00Z'";
        self.one("session", 'b', 1, "session_started", session, sessions).await?;
        let agent = "'number', n, 'name', 'machine ' || n, 'agent_type', 'server', 'description', 'in hall ' || n % 7";
        self.one("agent", 'c', 1, "agent_created", agent, agents).await?;
        let token =
            "'number', n, 'name', 'token ' || n, 'agent', agent(n), 'description', NULL, 'expires_at', NULL,
                     'secret_sha256', digest(n)";
        self.one("agent_token", 'f', 1, "agent_token_created", token, agents).await?;
        let connected = "'session', key('9', n), 'transport', 'websocket'";
        self.one("agent", 'c', 2, "agent_connected", connected, agents).await?;
        let described =
            "'version', '0.1.0', 'hostname', 'machine' || n, 'system', 'linux', 'ip_address', '192.0.2.1',
                         'capabilities', jsonb_build_array('checksum', 'tree', 'resume', 'ack')";
        self.one("agent", 'c', 3, "agent_described", described, agents).await?;
        let job = "'number', n, 'owner', key('a', n % users), 'name', 'job ' || n, 'job_type', 'push',
                   'source_agent', agent(n % agents), 'destination_agent', agent((n + 1) % agents),
                   'source_path', 'results/', 'destination_path', 'incoming/', 'enabled', true, 'overlap', 'skip',
                   'schedule', jsonb_build_object('cron', '0 30 2 * * *', 'timezone', 'Europe/Berlin'),
                   'retry', jsonb_build_object('max_attempts', 3, 'backoff_seconds', 5), 'description', 'every night'";
        self.one("job", 'd', 1, "job_created", job, jobs).await
    }

    /// One event of each of `count` aggregates.
    async fn one(
        &mut self,
        aggregate: &str,
        kind: char,
        sequence: u64,
        event: &str,
        payload: &str,
        count: u64,
    ) -> anyhow::Result<()> {
        let position = format!("{} + n + 1", self.position);
        self.insert(aggregate, kind, sequence, event, payload, count, &position).await?;
        self.position += count;
        Ok(())
    }

    /// One event of each transfer; the events of a group that is in progress together lie between each other.
    async fn step(&mut self, sequence: u64, event: &str, payload: &str) -> anyhow::Result<()> {
        let (first, steps, offset) = (self.position, STEPS.len(), (sequence - 1) * CONCURRENT);
        let position =
            format!("{first} + n / {CONCURRENT} * {CONCURRENT} * {steps} + {offset} + n % {CONCURRENT} + 1");
        let transfers = self.counts.transfers;
        self.insert("transfer", 'e', sequence, event, payload, transfers, &position).await
    }

    async fn insert(
        &mut self,
        aggregate: &str,
        kind: char,
        sequence: u64,
        event: &str,
        payload: &str,
        count: u64,
        position: &str,
    ) -> anyhow::Result<()> {
        let Counts { users, agents, jobs, .. } = self.counts;
        let mut payload = payload.to_owned();
        for function in ["key(", "agent(", "digest("] {
            payload = payload.replace(function, &format!("pg_temp.{function}"));
        }
        let insert = format!(
            "INSERT INTO events (position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload,
                                 metadata, recorded_at)
             SELECT {position}, '{aggregate}', pg_temp.key('{kind}', n), {sequence}, '{event}', '1',
                    jsonb_build_object('type', '{event}', {payload}),
                    jsonb_build_object('command_id', gen_random_uuid(), 'actor', 'user:' || pg_temp.key('a', n % users),
                                       'correlation', md5(n::text)),
                    timestamptz '2026-01-01' + ({position}) * interval '10 milliseconds'
               FROM generate_series(0, {count}::bigint - 1) AS n,
                    (SELECT {users}::bigint AS users, {agents}::bigint AS agents, {jobs}::bigint AS jobs) AS counts
              ORDER BY n"
        );
        self.connection.execute(insert.as_str()).await?;
        Ok(())
    }

    async fn end(&mut self) -> anyhow::Result<u64> {
        let head: i64 = sqlx::query_scalar(
            "UPDATE log_head SET position = (SELECT max(position) FROM events) WHERE log = 'events' RETURNING position",
        )
        .fetch_one(&mut *self.connection)
        .await?;
        self.connection.execute("VACUUM ANALYZE events").await?;
        Ok(u64::try_from(head)?)
    }
}
