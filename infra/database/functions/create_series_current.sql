-- Revision 1
-- The current value of each channel: the newest by the earlier of when it was measured and when it arrived, so that a device
-- whose clock is ahead does not hide what follows. `rank` is that earlier time. The newest by measurement stays in
-- `latest`.
-- A process of an earlier version rebuilds by this function, so it makes the roll-ups, too.
CREATE OR REPLACE FUNCTION create_series_current(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I.current (
        channel int PRIMARY KEY, rank bigint NOT NULL, time bigint NOT NULL, value float8 NOT NULL, day date NOT NULL,
        position bigint NOT NULL, index int NOT NULL)', place);
    PERFORM create_rollups(place);
END $$;
