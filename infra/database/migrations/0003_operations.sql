-- What serves the running processes: neither truth nor derived from it.
CREATE SCHEMA ops;

-- Integers that clients of service 1 see.
CREATE SEQUENCE ops.user_numbers;
CREATE SEQUENCE ops.agent_numbers;
CREATE SEQUENCE ops.agent_token_numbers;
CREATE SEQUENCE ops.job_numbers;
CREATE SEQUENCE ops.transfer_numbers;

-- Keys that sign JWTs; the newest one that is not retired signs, all that are not retired verify.
CREATE TABLE ops.signing_keys (
    kid        text PRIMARY KEY,
    secret     bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    retired_at timestamptz
);

-- First answers to requests with an Idempotency-Key, kept for 24 h.
CREATE TABLE ops.idempotent_requests (
    principal    text        NOT NULL,
    key          text        NOT NULL,
    fingerprint  bytea       NOT NULL,
    seed         uuid        NOT NULL,
    status       smallint,
    content_type text,
    location     text,
    body         bytea,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotent_requests_age ON ops.idempotent_requests (created_at);

-- When each connected agent was last heard, written in batches by the gateways.
CREATE TABLE ops.agent_presence (
    agent_id  uuid PRIMARY KEY,
    session   uuid        NOT NULL,
    last_seen timestamptz NOT NULL
);

-- Last use of credentials, written in batches by the gateways.
CREATE TABLE ops.token_uses (
    token_id  uuid PRIMARY KEY,
    last_used timestamptz NOT NULL
);

-- How far the relay has published the log.
CREATE TABLE ops.relay_checkpoint (
    relay    text PRIMARY KEY,
    position bigint NOT NULL
);
