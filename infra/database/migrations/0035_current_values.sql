-- The current value of each channel: the newest by the earlier of when it was measured and when it arrived, so that a device
-- whose clock is ahead does not hide what comes after it. `rank` is that earlier time. The newest by measurement stays in
-- `latest`. The fold of datapoints fills the table for channels that have values already.
CREATE FUNCTION create_series_current(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I.current (
        channel int PRIMARY KEY, rank bigint NOT NULL, time bigint NOT NULL, value float8 NOT NULL, day date NOT NULL,
        position bigint NOT NULL, index int NOT NULL)', place);
END $$;
SELECT create_series_current('series');
