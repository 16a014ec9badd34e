-- Revision 1
-- Renews what `me` holds, and gives it its share of the shards: all that are free, but not more than there are for each
-- evaluator that lives; what it has above that it gives back.
CREATE OR REPLACE FUNCTION ops.claim_rule_shards(me uuid, lease interval) RETURNS SETOF ops.rule_shards LANGUAGE plpgsql AS $$
DECLARE
    instant timestamptz := clock_timestamp();
    share   int;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('claim_rule_shards', 0));
    DELETE FROM ops.rule_evaluators WHERE alive_until < instant;
    INSERT INTO ops.rule_evaluators (id, alive_until) VALUES (me, instant + lease)
        ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until;
    share := ceil((SELECT count(*) FROM ops.rule_shards)::numeric / (SELECT count(*) FROM ops.rule_evaluators));
    WITH mine AS (
        SELECT shard FROM ops.rule_shards WHERE owner IS NULL OR owner = me OR owned_until < instant
         ORDER BY owner IS DISTINCT FROM me, shard LIMIT share)
    UPDATE ops.rule_shards s
       SET owner = CASE WHEN s.shard IN (SELECT shard FROM mine) THEN me END,
           owned_until = CASE WHEN s.shard IN (SELECT shard FROM mine) THEN instant + lease END
     WHERE s.owner = me OR s.shard IN (SELECT shard FROM mine);
    RETURN QUERY SELECT * FROM ops.rule_shards WHERE owner = me ORDER BY shard;
END $$;
