-- The roll-ups of the hours of a day of measurement in one row, see docs/adr/0053-packed-hours.md. They repeat what `series.rollups` says.
-- Bit `n` of `hours` is for hour `n` of the day; the columns hold the figures of those hours one after the other.
CREATE TABLE series.packed_hours (
    channel int NOT NULL, number int NOT NULL, day date NOT NULL, hours int NOT NULL, sums bytea NOT NULL, extremes bytea NOT NULL,
    ends bytea NOT NULL, PRIMARY KEY (channel, number, day)) WITH (toast_tuple_target = 8160);
CREATE INDEX packed_hours_day ON series.packed_hours (day);

-- Days of measurement whose hours are to be packed.
CREATE TABLE series.unpacked_hours (
    channel int NOT NULL, number int NOT NULL, day date NOT NULL, PRIMARY KEY (channel, number, day));

-- The packs belong to the roll-ups only where this is the position of `progress`: a process of an earlier version folds without them.
-- Hours of days of the log before `ended_before` are packed or in line, and with `has_late`, late ones of the present day.
CREATE TABLE series.pack_progress (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), position bigint NOT NULL, ended_before date,
    has_late boolean NOT NULL DEFAULT false);
INSERT INTO series.pack_progress (position) VALUES (-1);

-- One that is being built by an earlier version would be swapped in without them.
DROP SCHEMA IF EXISTS read_rebuild_series CASCADE;
