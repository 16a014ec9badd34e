-- Revision 2
-- Aggregates of the points of each channel per hour and per day of measurement, by the day of their rows in the log as chunks are.
-- The fold of datapoints keeps them together with the chunks, see docs/adr/0041-rollups-with-the-chunks.md.
CREATE OR REPLACE FUNCTION create_rollups(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- `span` is 1 for an hour and 24 for a day; `number` counts those since 1970. `sum_low` are the digits that `sum` has no room for.
    EXECUTE format('CREATE TABLE %I.rollups (
        channel int NOT NULL, span int NOT NULL, number int NOT NULL, day date NOT NULL, count bigint NOT NULL,
        sum float8 NOT NULL, sum_low float8 NOT NULL, min float8 NOT NULL, max float8 NOT NULL,
        first_time bigint NOT NULL, first_value float8 NOT NULL, first_position bigint NOT NULL, first_index int NOT NULL,
        last_time bigint NOT NULL, last_value float8 NOT NULL, last_position bigint NOT NULL, last_index int NOT NULL,
        PRIMARY KEY (channel, span, number, day)) WITH (fillfactor = 85)', place);
    EXECUTE format('CREATE INDEX rollups_day ON %I.rollups (day)', place);
    -- Days of the log whose points have no roll-ups yet. They are rolled up a day at a time; until then, their chunks are read.
    EXECUTE format('CREATE TABLE %I.unrolled_days (day date PRIMARY KEY)', place);
    -- The roll-ups belong to the chunks only where this is the position of `progress`: a process of an earlier version folds
    -- without them.
    EXECUTE format('CREATE TABLE %I.rollup_progress (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), position bigint NOT NULL)', place);
    EXECUTE format('INSERT INTO %I.rollup_progress (position) SELECT position FROM %I.progress', place, place);
    EXECUTE format('INSERT INTO %I.unrolled_days SELECT DISTINCT day FROM %I.hours', place, place);
    -- The hours of a day of measurement in one row; bit `n` of `hours` is for hour `n`. See docs/adr/0053-packed-hours.md.
    EXECUTE format('CREATE TABLE %I.packed_hours (
        channel int NOT NULL, number int NOT NULL, day date NOT NULL, hours int NOT NULL, sums bytea NOT NULL, extremes bytea NOT NULL,
        ends bytea NOT NULL, PRIMARY KEY (channel, number, day)) WITH (toast_tuple_target = 8160)', place);
    EXECUTE format('CREATE INDEX packed_hours_day ON %I.packed_hours (day)', place);
    -- Days of measurement whose hours are to be packed.
    EXECUTE format('CREATE TABLE %I.unpacked_hours (
        channel int NOT NULL, number int NOT NULL, day date NOT NULL, PRIMARY KEY (channel, number, day))', place);
    -- The packs belong to the roll-ups only where this is the position of `progress`. Hours of days of the log before `ended_before` are
    -- packed or in line, and with `has_late`, late ones of the present day.
    EXECUTE format('CREATE TABLE %I.pack_progress (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), position bigint NOT NULL, ended_before date,
        has_late boolean NOT NULL DEFAULT false)', place);
    EXECUTE format('INSERT INTO %I.pack_progress (position) VALUES (-1)', place);
END $$;

-- One that an earlier version has begun meanwhile would be swapped in without some of the tables.
DROP SCHEMA IF EXISTS read_rebuild_series CASCADE;
