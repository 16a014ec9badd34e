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

-- The secret that public ids of datapoints are checked with. It stays for ever, as the ids do.
CREATE TABLE datapoint_key (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO datapoint_key DEFAULT VALUES;

-- The log of datapoints: one row per commit, its batches encoded as columns one after the other (kind 1), or the deletion
-- of one point (kind 2, as JSON). It has a head row of its own, positions are gapless and in commit order, and
-- partitions are of one day each, so that retention drops them.
ALTER TABLE log_head ADD points bigint NOT NULL DEFAULT 0;
INSERT INTO log_head (log, position) VALUES ('datapoints', 0);

CREATE TABLE datapoint_log (
    position    bigint      NOT NULL,
    day         date        NOT NULL,
    recorded_at timestamptz NOT NULL,
    kind        smallint    NOT NULL,
    points      int         NOT NULL, -- in this row
    total       bigint      NOT NULL, -- in this row and all before it
    payload     bytea       NOT NULL,
    PRIMARY KEY (position, day)
) PARTITION BY RANGE (day);
-- It is packed already.
ALTER TABLE datapoint_log ALTER payload SET STORAGE EXTERNAL;
CREATE TRIGGER datapoint_log_append_only BEFORE UPDATE OR DELETE ON datapoint_log
    FOR EACH ROW EXECUTE FUNCTION forbid_change();

-- A batch seen before is answered as before; kept for two days.
CREATE TABLE datapoint_batches (
    batch_id    uuid   NOT NULL,
    day         date   NOT NULL,
    position    bigint NOT NULL,
    first_index int    NOT NULL,
    PRIMARY KEY (batch_id, day)
) PARTITION BY RANGE (day);

-- Points that were deleted, by the day of their row.
CREATE TABLE datapoint_tombstones (
    position bigint NOT NULL,
    index    int    NOT NULL,
    day      date   NOT NULL,
    PRIMARY KEY (position, index, day)
) PARTITION BY RANGE (day);

-- Makes the partition of `wanted` for a table that is partitioned by day.
CREATE FUNCTION add_day(parent regclass, wanted date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part text := (SELECT relname FROM pg_class WHERE oid = parent) || to_char(wanted, '"_"YYYYMMDD');
    place text := (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = parent);
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('add_day', 0));
    IF to_regclass(format('%s.%I', place, part)) IS NULL THEN
        EXECUTE format('CREATE TABLE %s.%I PARTITION OF %s FOR VALUES FROM (%L) TO (%L)',
                       place, part, parent, wanted, wanted + 1);
    END IF;
END $$;

-- Drops the partitions of a table that hold days before `oldest`; gives back how many. It gives up before readers that
-- come after it would have to wait long.
CREATE FUNCTION drop_days(parent regclass, oldest date) RETURNS int LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    part record;
    dropped int := 0;
BEGIN
    FOR part IN
        SELECT c.oid::regclass AS name, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = parent
    LOOP
        IF to_date(right(part.relname, 8), 'YYYYMMDD') < oldest THEN
            EXECUTE format('DROP TABLE %s', part.name);
            dropped := dropped + 1;
        END IF;
    END LOOP;
    RETURN dropped;
END $$;

-- Appends batches as one row and tells each of them its place. A batch that was appended before is left out and told its
-- first place again. As in append_events, the head row is locked first.
CREATE FUNCTION append_datapoints(batch_ids uuid[], counts int[], blocks bytea[], now timestamptz)
RETURNS TABLE (log_position bigint, log_day date, first_index int, is_duplicate boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    today date := (now AT TIME ZONE 'UTC')::date;
    head bigint;
    before bigint;
    fresh int[];
    added int;
BEGIN
    SELECT position, points INTO head, before FROM log_head WHERE log = 'datapoints' FOR UPDATE;
    fresh := ARRAY(
        SELECT n.idx::int FROM unnest(batch_ids) WITH ORDINALITY AS n (id, idx)
         WHERE NOT EXISTS (SELECT FROM datapoint_batches b
                            WHERE b.batch_id = n.id AND b.day BETWEEN today - 1 AND today + 1)
         ORDER BY n.idx);
    IF cardinality(fresh) > 0 THEN
        added := (SELECT sum(counts[i]) FROM unnest(fresh) AS f (i));
        INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
        SELECT head + 1, today, now, 1, added, before + added, string_agg(blocks[f.i], ''::bytea ORDER BY f.i)
          FROM unnest(fresh) AS f (i);
        INSERT INTO datapoint_batches (batch_id, day, position, first_index)
        SELECT batch_ids[f.i], today, head + 1, sum(counts[f.i]) OVER (ORDER BY f.i) - counts[f.i]
          FROM unnest(fresh) AS f (i);
        UPDATE log_head SET position = head + 1, points = before + added WHERE log = 'datapoints';
    END IF;
    RETURN QUERY
        SELECT b.position, b.day, b.first_index, n.idx::int <> ALL (fresh)
          FROM unnest(batch_ids) WITH ORDINALITY AS n (id, idx)
          JOIN LATERAL (SELECT * FROM datapoint_batches b
                         WHERE b.batch_id = n.id AND b.day BETWEEN today - 1 AND today + 1 LIMIT 1) b ON true
         ORDER BY n.idx;
END $$;

-- Appends the deletion of one point; gives back its position, or null when the point was deleted before.
CREATE FUNCTION append_tombstone(point_day date, point_position bigint, point_index int, description bytea, now timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
    before bigint;
BEGIN
    SELECT position, points INTO head, before FROM log_head WHERE log = 'datapoints' FOR UPDATE;
    INSERT INTO datapoint_tombstones (position, index, day) VALUES (point_position, point_index, point_day)
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
    VALUES (head + 1, (now AT TIME ZONE 'UTC')::date, now, 2, 0, before, description);
    UPDATE log_head SET position = head + 1 WHERE log = 'datapoints';
    RETURN head + 1;
END $$;

-- The read models of datapoints, in a schema of their own, so that a rebuild makes the same beside it and swaps.
CREATE FUNCTION create_series(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE SCHEMA %I', place);
    -- How far the log has been folded.
    EXECUTE format('CREATE TABLE %I.progress (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), position bigint NOT NULL, day date NOT NULL, total bigint NOT NULL)', place);
    EXECUTE format('INSERT INTO %I.progress (position, day, total) VALUES (0, ''1970-01-01'', 0)', place);
    -- The newest point of each channel.
    EXECUTE format('CREATE TABLE %I.latest (
        channel int PRIMARY KEY, time bigint NOT NULL, value float8 NOT NULL, day date NOT NULL,
        position bigint NOT NULL, index int NOT NULL)', place);
    -- Points of one channel and one hour, in one row or a few, by the day of their rows in the log. Samples of 8 and 64
    -- parts of the row stand beside the points where those are many.
    EXECUTE format('CREATE TABLE %I.chunks (
        channel int NOT NULL, hour int NOT NULL, part int NOT NULL, day date NOT NULL, count int NOT NULL,
        min_time bigint NOT NULL, max_time bigint NOT NULL, brief bytea, digest bytea, points bytea NOT NULL,
        PRIMARY KEY (channel, hour, part, day)) PARTITION BY RANGE (day)', place);
    EXECUTE format('ALTER TABLE %I.chunks ALTER brief SET STORAGE MAIN, ALTER digest SET STORAGE EXTERNAL, ALTER points SET STORAGE EXTERNAL', place);
    EXECUTE format('CREATE INDEX chunks_hour ON %I.chunks (hour) INCLUDE (count)', place);
END $$;
SELECT create_series('series');
