-- The people and programs that are notified of alarms.
CREATE TABLE read.contacts (
    id           uuid PRIMARY KEY,
    owner_id     uuid        NOT NULL,
    name         text        NOT NULL,
    kind         text        NOT NULL,
    destination  jsonb       NOT NULL, -- by its kind; secrets are sealed
    quiet_hours  jsonb,
    is_reachable boolean     NOT NULL, -- false while its newest change cannot be read: its old address gets nothing more
    version      bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL
);
CREATE INDEX contacts_created ON read.contacts (created_at, id);

-- Who is notified of a rule's alarms.
ALTER TABLE read.rules ADD COLUMN notify jsonb NOT NULL DEFAULT '{}';
