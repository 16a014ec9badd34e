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
