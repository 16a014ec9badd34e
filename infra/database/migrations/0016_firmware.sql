-- fleet: versions that machines may be brought to.
CREATE TABLE read.firmware_updates (
    id              uuid PRIMARY KEY,
    owner_id        uuid        NOT NULL,
    release         text        NOT NULL, -- three numbers with dots
    changelog       text,
    download_url    text,
    expected_sha256 text,
    signature       text,
    blob_id         uuid,                 -- names the bundle in the blob store
    file_size       bigint,
    file_sha256     text,
    status          text        NOT NULL, -- `deleted` while its files are yet to be removed
    error           text,
    error_code      text,
    work            text,                 -- `apply` or `rollback`, while a worker is to do it
    attempts        int         NOT NULL, -- how often that was begun
    previous        jsonb,                -- what was in force before; none for what came with the product
    version         bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    started_at      timestamptz,
    completed_at    timestamptz,
    updated_at      timestamptz NOT NULL
);
CREATE INDEX firmware_updates_created ON read.firmware_updates (created_at, id);
CREATE INDEX firmware_updates_work ON read.firmware_updates (id) WHERE work IS NOT NULL OR status = 'deleted';

-- The version in force: one row, once there was an update.
CREATE TABLE read.firmware_installation (
    id      uuid PRIMARY KEY,
    running jsonb -- none for what came with the product
);
