-- Revision 1
-- Appends batches as one row and returns the place of each. A batch that was appended before is left out, and its first place
-- returned. As in append_events, the head row is locked first.
--
-- A batch is recognised on every day that is kept, because the days come from the clocks of several processes, one of which
-- may be wrong.
--
-- The plans of the append are made once, perhaps while the tables are empty, and must stay right when they have grown.
-- NOT EXISTS with mere equalities is a join to PostgreSQL, and an empty table makes a scan of all batches of the day seem
-- cheap; a subquery with LIMIT is always looked up by key.
CREATE OR REPLACE FUNCTION append_datapoints(batch_ids uuid[], counts int[], blocks bytea[], now timestamptz)
RETURNS TABLE (log_position bigint, log_day date, first_index int, is_duplicate boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    today date := (now AT TIME ZONE 'UTC')::date;
    head bigint;
    before bigint;
    fresh int[];
    added int;
BEGIN
    SELECT position, points INTO head, before FROM log_head WHERE log = 'datapoints'
     ORDER BY position DESC LIMIT 1 FOR UPDATE;
    fresh := ARRAY(
        SELECT n.idx::int FROM unnest(batch_ids) WITH ORDINALITY AS n (id, idx)
         WHERE (SELECT b.position FROM datapoint_batches b
                 WHERE b.batch_id = n.id LIMIT 1) IS NULL
         ORDER BY n.idx);
    IF cardinality(fresh) > 0 THEN
        added := (SELECT sum(counts[i]) FROM unnest(fresh) AS f (i));
        INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
        SELECT head + 1, today, now, 1, added, before + added, string_agg(blocks[f.i], ''::bytea ORDER BY f.i)
          FROM unnest(fresh) AS f (i);
        INSERT INTO datapoint_batches (batch_id, day, position, first_index)
        SELECT batch_ids[f.i], today, head + 1, sum(counts[f.i]) OVER (ORDER BY f.i) - counts[f.i]
          FROM unnest(fresh) AS f (i);
        UPDATE log_head SET position = head + 1, points = before + added WHERE log = 'datapoints' AND position = head;
    END IF;
    RETURN QUERY
        SELECT b.position, b.day, b.first_index, n.idx::int <> ALL (fresh)
          FROM unnest(batch_ids) WITH ORDINALITY AS n (id, idx)
          JOIN LATERAL (SELECT * FROM datapoint_batches b
                         WHERE b.batch_id = n.id LIMIT 1) b ON true
         ORDER BY n.idx;
END $$;
