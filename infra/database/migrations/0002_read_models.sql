-- Everything here is derived from the log, and can be rebuilt beside the live tables (`signalbox projections rebuild`).
CREATE SCHEMA read;

CREATE TABLE read.checkpoints (
    projection text PRIMARY KEY,
    position   bigint NOT NULL
);

-- Events that a projection could not apply while live; a rebuild stops at them instead.
CREATE TABLE read.poisonous_events (
    projection text        NOT NULL,
    position   bigint      NOT NULL,
    error      text        NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (projection, position)
);

-- identity
CREATE TABLE read.users (
    id            uuid PRIMARY KEY,
    number        bigint      NOT NULL,
    email         text        NOT NULL,
    username      text        NOT NULL,
    role          text        NOT NULL,
    password_hash text        NOT NULL,
    sso_provider  text,
    valid_after   bigint      NOT NULL, -- position: sessions that started before are void
    version       bigint      NOT NULL,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL
);
CREATE INDEX users_email ON read.users (lower(email));
CREATE INDEX users_username ON read.users (lower(username));

CREATE TABLE read.sessions (
    id         uuid PRIMARY KEY,
    user_id    uuid        NOT NULL,
    position   bigint      NOT NULL,
    started_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    ended_at   timestamptz
);

-- transfer
CREATE TABLE read.agents (
    id             uuid PRIMARY KEY,
    number         bigint      NOT NULL,
    name           text        NOT NULL,
    agent_type     text        NOT NULL,
    description    text,
    status         text        NOT NULL,
    version_text   text,
    hostname       text,
    system         text,
    ip_address     text,
    capabilities   text[]      NOT NULL,
    transport_mode text,
    session        uuid,
    connected_at   timestamptz,
    last_seen      timestamptz,
    version        bigint      NOT NULL,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);
CREATE INDEX agents_number ON read.agents (number);
CREATE INDEX agents_name ON read.agents (name, number);

CREATE TABLE read.agent_tokens (
    id            uuid PRIMARY KEY,
    number        bigint      NOT NULL,
    name          text        NOT NULL,
    agent_id      uuid        NOT NULL,
    agent_number  bigint      NOT NULL,
    description   text,
    secret_sha256 text        NOT NULL,
    expires_at    timestamptz,
    created_at    timestamptz NOT NULL,
    version       bigint      NOT NULL
);
CREATE INDEX agent_tokens_secret ON read.agent_tokens (secret_sha256);
CREATE INDEX agent_tokens_number ON read.agent_tokens (number);
CREATE INDEX agent_tokens_agent ON read.agent_tokens (agent_id);

CREATE TABLE read.jobs (
    id                       uuid PRIMARY KEY,
    number                   bigint      NOT NULL,
    owner_id                 uuid        NOT NULL,
    name                     text        NOT NULL,
    job_type                 text        NOT NULL,
    enabled                  boolean     NOT NULL,
    source_agent_id          uuid        NOT NULL,
    source_agent_number      bigint      NOT NULL,
    destination_agent_id     uuid        NOT NULL,
    destination_agent_number bigint      NOT NULL,
    source_path              text        NOT NULL,
    destination_path         text        NOT NULL,
    schedule                 text,
    timezone                 text,
    max_attempts             int         NOT NULL,
    backoff_seconds          int         NOT NULL,
    overlap                  text        NOT NULL,
    description              text,
    last_run                 timestamptz,
    next_run                 timestamptz,
    last_transfer_number     bigint,
    version                  bigint      NOT NULL,
    created_at               timestamptz NOT NULL,
    updated_at               timestamptz NOT NULL
);
CREATE INDEX jobs_number ON read.jobs (number);
CREATE INDEX jobs_owner ON read.jobs (owner_id, number);
CREATE INDEX jobs_due ON read.jobs (next_run) WHERE next_run IS NOT NULL;

CREATE TABLE read.transfers (
    id                       uuid PRIMARY KEY,
    number                   bigint      NOT NULL,
    owner_id                 uuid        NOT NULL,
    job_id                   uuid,
    job_number               bigint,
    job_type                 text        NOT NULL,
    source_agent_id          uuid        NOT NULL,
    source_agent_number      bigint      NOT NULL,
    destination_agent_id     uuid        NOT NULL,
    destination_agent_number bigint      NOT NULL,
    source_path              text        NOT NULL,
    destination_path         text        NOT NULL,
    filename                 text        NOT NULL,
    size                     bigint,
    status                   text        NOT NULL,
    phase                    text        NOT NULL,
    attempts                 int         NOT NULL,
    asked                    boolean     NOT NULL,
    max_attempts             int         NOT NULL,
    file_count               bigint      NOT NULL,
    uploaded                 bigint      NOT NULL,
    downloaded               bigint      NOT NULL,
    sha256                   text,
    proven                   boolean     NOT NULL,
    cleaned                  boolean     NOT NULL,
    error                    text,
    not_before               timestamptz,
    active_at                timestamptz NOT NULL,
    started_at               timestamptz,
    finished_at              timestamptz,
    version                  bigint      NOT NULL,
    created_at               timestamptz NOT NULL,
    updated_at               timestamptz NOT NULL
);
CREATE INDEX transfers_number ON read.transfers (number);
CREATE INDEX transfers_owner ON read.transfers (owner_id, number);
CREATE INDEX transfers_job ON read.transfers (job_id, number) WHERE job_id IS NOT NULL;
CREATE INDEX transfers_open ON read.transfers (phase, number) WHERE phase <> 'done';
CREATE INDEX transfers_uncleaned ON read.transfers (finished_at) WHERE phase = 'done' AND NOT cleaned;

CREATE TABLE read.transfer_files (
    transfer_id uuid   NOT NULL,
    name        text   NOT NULL,
    size        bigint NOT NULL,
    sha256      text   NOT NULL,
    PRIMARY KEY (transfer_id, name)
);
