-- How many points each hour has, so that a list of all channels need not sum their chunks: 1.3 to 2.2 s a page at 300,000 rows.
-- Triggers keep it, whoever writes chunks; retention, which drops partitions, deletes its days itself.
CREATE FUNCTION count_added_chunks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'INSERT INTO %I.hours AS h (hour, day, count, min_time, max_time)
         SELECT hour, day, sum(count), min(min_time), max(max_time) FROM added GROUP BY hour, day
             ON CONFLICT (hour, day) DO UPDATE SET count = h.count + excluded.count,
                min_time = least(h.min_time, excluded.min_time), max_time = greatest(h.max_time, excluded.max_time)',
        TG_TABLE_SCHEMA);
    RETURN NULL;
END $$;

-- The times stay as wide as they were.
CREATE FUNCTION count_removed_chunks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'UPDATE %I.hours h SET count = h.count - r.count
           FROM (SELECT hour, day, sum(count) AS count FROM removed GROUP BY hour, day) r
          WHERE h.hour = r.hour AND h.day = r.day',
        TG_TABLE_SCHEMA);
    RETURN NULL;
END $$;

CREATE FUNCTION create_hours(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I.hours (
        hour int NOT NULL, day date NOT NULL, count bigint NOT NULL, min_time bigint NOT NULL, max_time bigint NOT NULL,
        PRIMARY KEY (hour, day))', place);
    EXECUTE format('CREATE TRIGGER chunks_added AFTER INSERT ON %I.chunks REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT EXECUTE FUNCTION count_added_chunks()', place);
    EXECUTE format('CREATE TRIGGER chunks_removed AFTER DELETE ON %I.chunks REFERENCING OLD TABLE AS removed
        FOR EACH STATEMENT EXECUTE FUNCTION count_removed_chunks()', place);
    EXECUTE format('INSERT INTO %I.hours SELECT hour, day, sum(count), min(min_time), max(max_time) FROM %I.chunks
        GROUP BY hour, day', place, place);
END $$;

CREATE OR REPLACE FUNCTION create_series(place text) RETURNS void LANGUAGE plpgsql AS $$
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
    PERFORM create_hours(place);
END $$;

-- One that is being built by an earlier version would be swapped in without its hours.
DROP SCHEMA IF EXISTS read_rebuild_series CASCADE;
SELECT create_hours('series');
