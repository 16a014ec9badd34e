-- Revision 1
-- The read models of datapoints, in a schema of their own, so that a rebuild makes the same beside it and swaps.
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
