-- Revision 1
-- Appends the deletion of one point; gives back its position, or null when the point was deleted before.
CREATE OR REPLACE FUNCTION append_tombstone(point_day date, point_position bigint, point_index int, description bytea, now timestamptz)
RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    head bigint;
    before bigint;
BEGIN
    SELECT position, points INTO head, before FROM log_head WHERE log = 'datapoints'
     ORDER BY position DESC LIMIT 1 FOR UPDATE;
    INSERT INTO datapoint_tombstones (position, index, day) VALUES (point_position, point_index, point_day)
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
    VALUES (head + 1, (now AT TIME ZONE 'UTC')::date, now, 2, 0, before, description);
    UPDATE log_head SET position = head + 1 WHERE log = 'datapoints' AND position = head;
    RETURN head + 1;
END $$;
