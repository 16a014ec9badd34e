-- Channels and datapoints.

-- The integer that stands for a channel in the datapoint log.
CREATE SEQUENCE ops.channel_numbers AS int;

CREATE TABLE read.channels (
    id           uuid PRIMARY KEY,
    number       int         NOT NULL,
    owner_id     uuid        NOT NULL,
    name         text        NOT NULL,
    channel_type text        NOT NULL,
    unit         text,
    min_value    float8,
    max_value    float8,
    deleted_at   timestamptz,
    version      bigint      NOT NULL,
    position     bigint      NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL
);
CREATE INDEX channels_live ON read.channels (created_at, number) WHERE deleted_at IS NULL;
CREATE INDEX channels_position ON read.channels (position);
