-- fleet: packages of plugins, instances of plugins, and the channels that these feed and obey.
CREATE TABLE read.plugin_packages (
    id              uuid PRIMARY KEY,
    owner_id        uuid        NOT NULL,
    name            text        NOT NULL,
    package_version text        NOT NULL,
    file_name       text        NOT NULL,
    size            bigint      NOT NULL,
    sha256          text        NOT NULL,
    classes         jsonb       NOT NULL, -- what was found in it
    position        bigint      NOT NULL, -- of its installation in the log
    version         bigint      NOT NULL,
    created_at      timestamptz NOT NULL
);
CREATE INDEX plugin_packages_position ON read.plugin_packages (position);

CREATE TABLE read.plugin_instances (
    id         uuid PRIMARY KEY,
    owner_id   uuid        NOT NULL,
    plugin_id  text        NOT NULL,
    name       text        NOT NULL,
    demo_mode  boolean     NOT NULL,
    enabled    boolean     NOT NULL,
    config     text,
    status     text        NOT NULL, -- as it was last reported; see ops.plugin_presence
    error      text,
    version    bigint      NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX plugin_instances_created ON read.plugin_instances (created_at, id);

CREATE TABLE read.channel_mappings (
    id           uuid PRIMARY KEY,
    instance_id  uuid        NOT NULL,
    position     bigint      NOT NULL, -- of its making in the log
    channel_id   text        NOT NULL,
    channel_name text        NOT NULL,
    direction    text        NOT NULL,
    unit         text        NOT NULL,
    event_id     uuid,                 -- a channel of the service, which may have been deleted since
    created_at   timestamptz NOT NULL
);
CREATE INDEX channel_mappings_instance ON read.channel_mappings (instance_id, position);

CREATE INDEX channel_mappings_event ON read.channel_mappings (event_id) WHERE event_id IS NOT NULL;

-- The events of a new instance are looked for by name.
CREATE INDEX channels_name ON read.channels (name) WHERE deleted_at IS NULL;

-- When a controller last said how an instance is.
CREATE TABLE ops.plugin_presence (
    instance_id uuid PRIMARY KEY,
    reported_at timestamptz NOT NULL
);
