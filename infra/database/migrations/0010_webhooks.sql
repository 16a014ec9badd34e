-- Keys that seal secrets which the log keeps; the newest one seals, all open. None is ever removed.
CREATE TABLE ops.sealing_keys (
    name       text PRIMARY KEY,
    secret     bytea       NOT NULL,
    created_at timestamptz NOT NULL
);

-- automation: webhook subscriptions and what has been or is to be delivered to them.
CREATE TABLE read.webhooks (
    id            uuid PRIMARY KEY,
    owner_id      uuid        NOT NULL,
    url           text        NOT NULL,
    sealed_secret text,
    events        text[]      NOT NULL,
    enabled       boolean     NOT NULL,
    failing_since timestamptz,          -- the first failed attempt after which none succeeded
    replay_id     uuid,                 -- the stretch of past events that is being delivered
    replay_after  bigint,
    replay_last   bigint,
    version       bigint      NOT NULL,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL
);
CREATE INDEX webhooks_created ON read.webhooks (created_at, id);
CREATE INDEX webhooks_replaying ON read.webhooks (id) WHERE replay_id IS NOT NULL;

CREATE TABLE read.deliveries (
    id             uuid PRIMARY KEY,
    consignment_id uuid        NOT NULL,
    webhook_id     uuid        NOT NULL,
    event_id       uuid        NOT NULL,
    event_type     text        NOT NULL,
    body           text        NOT NULL,
    status         text        NOT NULL,
    round          int         NOT NULL,
    attempts       int         NOT NULL,
    response_code  int,
    last_error     text,
    history        jsonb       NOT NULL, -- the newest attempts, oldest first
    due_at         timestamptz,          -- when the next attempt may begin; none when it has ended
    position       bigint      NOT NULL, -- of its queueing in the log
    created_at     timestamptz NOT NULL,
    ended_at       timestamptz,
    updated_at     timestamptz NOT NULL
);
CREATE INDEX deliveries_webhook ON read.deliveries (webhook_id, created_at, id);
CREATE INDEX deliveries_due ON read.deliveries (webhook_id, due_at, position) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_consignment ON read.deliveries (consignment_id) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_dead ON read.deliveries (webhook_id, ended_at) WHERE status = 'dead_letter';

-- Deliveries that are claimed together, and which of them are claimed now.
CREATE TABLE read.consignments (
    id         uuid PRIMARY KEY,
    webhook_id uuid        NOT NULL,
    claims     jsonb       NOT NULL,
    claimed_at timestamptz -- of its newest claim
);
CREATE INDEX consignments_claimed ON read.consignments (claimed_at) WHERE claimed_at IS NOT NULL;
CREATE INDEX consignments_webhook ON read.consignments (webhook_id);
