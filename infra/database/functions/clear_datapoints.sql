-- Revision 1
-- Replaces the payloads of rows of one day of the datapoint log by such without the removed values.
CREATE OR REPLACE FUNCTION clear_datapoints(row_day date, positions bigint[], payloads bytea[]) RETURNS void LANGUAGE plpgsql
SET signalbox.clearing = 'on' AS $$
BEGIN
    UPDATE datapoint_log l SET payload = c.payload
      FROM unnest(positions, payloads) AS c (position, payload) WHERE l.day = row_day AND l.position = c.position;
END $$;
