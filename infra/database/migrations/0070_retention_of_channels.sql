-- Days that the values of a channel are kept, in place of the general number; 0 for ever.
ALTER TABLE read.channels ADD COLUMN retention_days int;

-- Roll-ups whose values are gone. They cannot be derived any more, so they are not in the schema that a rebuild replaces.
CREATE TABLE ops.kept_rollups (
    channel int NOT NULL, span int NOT NULL, number int NOT NULL, day date NOT NULL, count bigint NOT NULL,
    sum float8 NOT NULL, sum_low float8 NOT NULL, min float8 NOT NULL, max float8 NOT NULL,
    first_time bigint NOT NULL, first_value float8 NOT NULL, first_position bigint NOT NULL, first_index int NOT NULL,
    last_time bigint NOT NULL, last_value float8 NOT NULL, last_position bigint NOT NULL, last_index int NOT NULL,
    PRIMARY KEY (channel, span, number, day)
);
CREATE INDEX kept_rollups_day ON ops.kept_rollups (day);

-- Channels whose values are being removed from a day of the log that others still need. Rows of the log up to `position` have
-- been rewritten without them.
CREATE TABLE ops.value_removals (
    day      date   PRIMARY KEY,
    channels int[]  NOT NULL,
    position bigint NOT NULL DEFAULT 0
);

-- Rows of the datapoint log change in one way: places of removed values become empty. A row keeps its length and its place.
CREATE OR REPLACE FUNCTION forbid_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME LIKE 'datapoint\_log%' AND TG_OP = 'UPDATE' AND current_setting('signalbox.clearing', true) = 'on' THEN
        IF (NEW.position, NEW.day, NEW.recorded_at, NEW.kind, NEW.points, NEW.total)
            = (OLD.position, OLD.day, OLD.recorded_at, OLD.kind, OLD.points, OLD.total) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the event log is append-only: % is forbidden', TG_OP;
END $$;

CREATE FUNCTION clear_datapoints(row_day date, positions bigint[], payloads bytea[]) RETURNS void LANGUAGE plpgsql
SET signalbox.clearing = 'on' AS $$
BEGIN
    UPDATE datapoint_log l SET payload = c.payload
      FROM unnest(positions, payloads) AS c (position, payload) WHERE l.day = row_day AND l.position = c.position;
END $$;
