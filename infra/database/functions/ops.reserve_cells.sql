-- Revision 1
-- Reserves values for a batch, by cells as ops.recent_cells has them, if none of the cells can have one of the values since the given
-- time. Returns whether it has: if not, nothing is changed, and the caller looks at what is there.
--
-- Senders of the same cells wait for one another until the transaction ends. What is read after the locks is read by a new snapshot, and
-- so sees what earlier ones have reserved.
CREATE OR REPLACE FUNCTION ops.reserve_cells(
    batch uuid, locks bigint[], cells int[], slots bigint[], first_times bigint[], last_times bigint[], bits bigint[], rows bytea[],
    now timestamptz, since timestamptz
) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    -- The commit need not wait for the disk: that of the log does, which follows it, and what is on the disk then includes it.
    -- Without that, no sender had the answer that its values are recorded.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_advisory_xact_lock(hashtextextended('recent.cells', 0) + l.lock) FROM unnest(locks) AS l (lock);
    IF EXISTS (SELECT FROM ops.recent_values) OR EXISTS (
        SELECT FROM unnest(cells, slots, first_times, last_times, bits) AS g (channels, slot, first_time, last_time, bits),
            LATERAL (SELECT FROM ops.recent_cells c
                      WHERE c.channels = g.channels AND c.slot = g.slot AND c.last_time >= g.first_time
                        AND c.first_time <= g.last_time AND c.bits & g.bits <> 0 AND c.reserved_at >= since
                     OFFSET 0) AS r) THEN
        RETURN false;
    END IF;
    INSERT INTO ops.recent_cells (channels, slot, first_time, last_time, bits, batch_id, reserved_at, points)
    SELECT g.channels, g.slot, g.first_time, g.last_time, g.bits, batch, now, g.points
      FROM unnest(cells, slots, first_times, last_times, bits, rows)
               AS g (channels, slot, first_time, last_time, bits, points);
    RETURN true;
END $$;
