-- identity: API tokens of users. Last uses are noted in ops.token_uses.
CREATE TABLE read.api_tokens (
    id            uuid PRIMARY KEY,
    user_id       uuid        NOT NULL,
    name          text        NOT NULL,
    secret_sha256 text        NOT NULL,
    expires_at    timestamptz,
    position      bigint      NOT NULL, -- of its creation in the log
    version       bigint      NOT NULL,
    created_at    timestamptz NOT NULL
);
CREATE INDEX api_tokens_secret ON read.api_tokens (secret_sha256);
CREATE INDEX api_tokens_user ON read.api_tokens (user_id, created_at);

-- monitoring: experiments, the log that people read, dashboards.
CREATE TABLE read.experiments (
    id         uuid PRIMARY KEY,
    owner_id   uuid        NOT NULL,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL,
    stopped_at timestamptz,
    version    bigint      NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX experiments_started ON read.experiments (started_at, id);

CREATE TABLE read.log_entries (
    id         uuid PRIMARY KEY,
    log_type   text        NOT NULL,
    status     text        NOT NULL,
    content    text        NOT NULL,
    source     text        NOT NULL,
    user_id    uuid,
    version    bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX log_entries_created ON read.log_entries (created_at, id);
CREATE INDEX log_entries_unread ON read.log_entries (created_at, id) WHERE status = 'unread';

CREATE TABLE read.dashboards (
    id         uuid PRIMARY KEY,
    owner_id   uuid        NOT NULL,
    name       text        NOT NULL,
    is_global  boolean     NOT NULL,
    version    bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX dashboards_owner ON read.dashboards (owner_id, created_at, id);
CREATE INDEX dashboards_global ON read.dashboards (created_at, id) WHERE is_global;

CREATE TABLE read.widgets (
    id           uuid PRIMARY KEY,
    dashboard_id uuid   NOT NULL,
    position     bigint NOT NULL, -- of its adding in the log, which orders a dashboard's widgets
    widget_type  text   NOT NULL,
    title        text   NOT NULL,
    channel_id   uuid,
    x            int    NOT NULL,
    y            int    NOT NULL,
    w            int    NOT NULL,
    h            int    NOT NULL,
    config       text
);
CREATE INDEX widgets_dashboard ON read.widgets (dashboard_id, position);
CREATE INDEX widgets_channel ON read.widgets (channel_id) WHERE channel_id IS NOT NULL;
