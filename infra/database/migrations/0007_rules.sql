-- automation: rules. One that was deleted stays, so that evaluators notice; lists leave it out.
CREATE TABLE read.rules (
    id                 uuid PRIMARY KEY,
    owner_id           uuid        NOT NULL,
    name               text        NOT NULL,
    channel_id         uuid        NOT NULL,
    operator           text        NOT NULL,
    threshold          float8      NOT NULL,
    threshold_high     float8,
    action_type        text        NOT NULL,
    webhook_event_type text,
    cooldown_seconds   bigint      NOT NULL,
    enabled            boolean     NOT NULL,
    earlier            jsonb       NOT NULL, -- what it was for values that came in before it was changed
    seen_position      bigint      NOT NULL, -- in the datapoint log: what is not behind it was judged, or never will be
    seen_index         bigint      NOT NULL,
    last_triggered_at  timestamptz,
    changed_at         bigint      NOT NULL, -- position of its newest event that is no firing
    deleted_at         timestamptz,
    version            bigint      NOT NULL,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL
);
CREATE INDEX rules_changed ON read.rules (changed_at);
CREATE INDEX rules_created ON read.rules (created_at, id) WHERE deleted_at IS NULL;

-- How far values have been judged, by shards of channels, and which process does so for the moment. It is an economy: two
-- that do the same one come to the same firings, and one of them moves the shard on.
CREATE TABLE ops.rule_shards (
    shard       int PRIMARY KEY,
    position    bigint NOT NULL, -- in the datapoint log
    day         date   NOT NULL,
    total       bigint NOT NULL, -- points up to there
    owner       uuid,
    owned_until timestamptz
);
INSERT INTO ops.rule_shards (shard, position, day, total)
SELECT shard, position, DATE '1970-01-01', points FROM log_head, generate_series(0, 15) AS s (shard)
 WHERE log = 'datapoints';

CREATE TABLE ops.rule_evaluators (
    id          uuid PRIMARY KEY,
    alive_until timestamptz NOT NULL
);

-- Renews what `me` holds, and gives it its share of the shards: all that are free, but not more than there are for each
-- evaluator that lives; what it has above that it gives back.
CREATE FUNCTION ops.claim_rule_shards(me uuid, lease interval) RETURNS SETOF ops.rule_shards LANGUAGE plpgsql AS $$
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
