-- Alarms of rules, with times of the channel's clock; places in the log say which state they had at a moment.
CREATE TABLE read.alarms (
    id               uuid PRIMARY KEY,
    rule_id          uuid        NOT NULL,
    channel_id       uuid        NOT NULL,
    state            text        NOT NULL,
    reason           text        NOT NULL,
    severity         text        NOT NULL,
    value            float8, -- the newest that was judged when the state changed
    started_on       timestamptz NOT NULL,
    fired_on         timestamptz,
    cleared_on       timestamptz,
    acknowledged_at  timestamptz,
    acknowledged_by  uuid,
    comment          text,
    is_published     boolean     NOT NULL, -- whether webhooks know that it fires
    started_position bigint      NOT NULL,
    fired_position   bigint,
    cleared_position bigint,
    version          bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL
);
CREATE INDEX alarms_created ON read.alarms (created_at, id);
CREATE INDEX alarms_open ON read.alarms (created_at, id) WHERE cleared_position IS NULL;
CREATE INDEX alarms_held_back ON read.alarms (started_position) WHERE state = 'firing' AND NOT is_published;

-- How far alarms have been judged. What a judge has to remember, and the changes of state that are to be recorded, are
-- committed with it: of two processes that judge the same, one moves the generation on.
CREATE TABLE ops.alarm_progress (
    one        boolean PRIMARY KEY CHECK (one),
    generation bigint NOT NULL,
    position   bigint NOT NULL, -- in the datapoint log
    day        date   NOT NULL,
    total      bigint NOT NULL  -- points up to there
);
INSERT INTO ops.alarm_progress (one, generation, position, day, total)
SELECT true, 0, position, DATE '1970-01-01', points FROM log_head WHERE log = 'datapoints';

-- By rule; one that has no alarm has no row.
CREATE TABLE ops.alarm_judges (
    rule_id uuid PRIMARY KEY,
    value   float8, -- the newest that was judged
    memory  jsonb NOT NULL
);

-- Changes of state that were decided, until they are recorded in the log.
CREATE TABLE ops.alarm_outbox (
    generation bigint NOT NULL,
    ordinal    int    NOT NULL,
    note       jsonb  NOT NULL,
    PRIMARY KEY (generation, ordinal)
);
