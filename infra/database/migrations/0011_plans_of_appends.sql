-- The plans of both appends are made once, perhaps while the tables are empty, and must stay right when they have grown.
-- EXISTS with mere equalities is a join to PostgreSQL, or a hash table of all rows, whichever an empty table makes seem
-- cheaper; a subquery with LIMIT is always looked up by key.
--
-- Each statement that a function starts costs as much as appending a row: what two statements decided and four wrote, one
-- decides and one writes.
CREATE OR REPLACE FUNCTION append_events(
    command_ids uuid[], command_types text[], command_streams text[], command_expected bigint[],
    command_counts int[], command_metadata jsonb[],
    claim_commands int[], claim_ops text[], claim_kinds text[], claim_keys text[],
    event_commands int[], event_sequences bigint[], event_types text[], event_versions text[], event_payloads jsonb[],
    now timestamptz
) RETURNS TABLE (outcome text, stream_version bigint, log_position bigint, detail text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    head     bigint;
    outcomes text[];
    details  text[];
BEGIN
    SELECT position INTO head FROM log_head WHERE log = 'events' FOR UPDATE;

    WITH failed AS MATERIALIZED (
        -- Of several that fail, the caller is told the first.
        SELECT DISTINCT ON (n.command) n.command, n.op || ':' || n.kind AS detail
          FROM unnest(claim_commands, claim_ops, claim_kinds, claim_keys) WITH ORDINALITY AS n (command, op, kind, key, idx)
          LEFT JOIN claims held ON held.kind = n.kind AND held.key = n.key
         WHERE CASE n.op
                WHEN 'take' THEN held.owner <> command_streams[n.command]
                WHEN 'require' THEN held.owner IS NULL
                WHEN 'require_none' THEN (SELECT c.owner FROM claims c WHERE c.kind = n.kind LIMIT 1) IS NOT NULL
                WHEN 'release_not_last' THEN NOT EXISTS (SELECT FROM claims c WHERE c.kind = n.kind AND c.key <> n.key)
                ELSE false END
         ORDER BY n.command, n.idx
    )
    SELECT array_agg(CASE WHEN o.command_id IS NOT NULL THEN 'duplicate'
                          WHEN coalesce(s.version, 0) <> c.expected THEN 'conflict'
                          WHEN f.detail IS NOT NULL THEN 'claim'
                          ELSE 'appended' END ORDER BY c.idx),
           array_agg(f.detail ORDER BY c.idx)
      INTO outcomes, details
      FROM unnest(command_ids, command_types, command_streams, command_expected)
           WITH ORDINALITY AS c (id, type, stream, expected, idx)
      LEFT JOIN command_outcomes o ON o.command_id = c.id
      LEFT JOIN failed f ON f.command = c.idx
      LEFT JOIN LATERAL (SELECT max(sequence) AS version FROM events e
                          WHERE e.aggregate_type = c.type AND e.aggregate_id = c.stream) s ON true;

    IF claim_ops && ARRAY['release', 'release_not_last'] THEN
        DELETE FROM claims c USING unnest(claim_commands, claim_ops, claim_kinds, claim_keys) AS n (command, op, kind, key)
         WHERE outcomes[n.command] = 'appended' AND n.op IN ('release', 'release_not_last')
           AND c.kind = n.kind AND c.key = n.key AND c.owner = command_streams[n.command];
    END IF;

    RETURN QUERY
    WITH command AS MATERIALIZED (
        SELECT c.*, outcomes[c.idx] AS outcome, details[c.idx] AS detail,
               head + sum(c.count) FILTER (WHERE outcomes[c.idx] = 'appended') OVER (ORDER BY c.idx) AS position
          FROM unnest(command_ids, command_types, command_streams, command_expected, command_counts)
               WITH ORDINALITY AS c (id, type, stream, expected, count, idx)
    ), taken AS (
        INSERT INTO claims (kind, key, owner)
        SELECT n.kind, n.key, command_streams[n.command]
          FROM unnest(claim_commands, claim_ops, claim_kinds, claim_keys) AS n (command, op, kind, key)
         WHERE outcomes[n.command] = 'appended' AND n.op = 'take'
            ON CONFLICT DO NOTHING
    ), written AS (
        INSERT INTO events (position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload, metadata, recorded_at)
        SELECT head + row_number() OVER (ORDER BY e.idx), command_types[e.command], command_streams[e.command], e.sequence,
               e.type, e.version, e.payload, command_metadata[e.command], now
          FROM unnest(event_commands, event_sequences, event_types, event_versions, event_payloads)
               WITH ORDINALITY AS e (command, sequence, type, version, payload, idx)
         WHERE outcomes[e.command] = 'appended'
    ), moved AS (
        UPDATE log_head SET position = (SELECT max(command.position) FROM command)
         WHERE log = 'events' AND 'appended' = ANY (outcomes)
    ), noted AS (
        INSERT INTO command_outcomes (command_id, aggregate_type, aggregate_id, version, position, recorded_at)
        SELECT c.id, c.type, c.stream, c.expected + c.count, c.position, now
          FROM command c WHERE c.outcome = 'appended'
    )
    SELECT c.outcome, CASE c.outcome WHEN 'appended' THEN c.expected + c.count ELSE o.version END,
           CASE c.outcome WHEN 'appended' THEN c.position::bigint ELSE o.position END, c.detail
      FROM command c
      LEFT JOIN command_outcomes o ON c.outcome = 'duplicate' AND o.command_id = c.id
     ORDER BY c.idx;
END $$;

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
    SELECT position, points INTO head, before FROM log_head WHERE log = 'datapoints' FOR UPDATE;
    fresh := ARRAY(
        SELECT n.idx::int FROM unnest(batch_ids) WITH ORDINALITY AS n (id, idx)
         WHERE (SELECT b.position FROM datapoint_batches b
                 WHERE b.batch_id = n.id AND b.day BETWEEN today - 1 AND today + 1 LIMIT 1) IS NULL
         ORDER BY n.idx);
    IF cardinality(fresh) > 0 THEN
        added := (SELECT sum(counts[i]) FROM unnest(fresh) AS f (i));
        INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
        SELECT head + 1, today, now, 1, added, before + added, string_agg(blocks[f.i], ''::bytea ORDER BY f.i)
          FROM unnest(fresh) AS f (i);
        INSERT INTO datapoint_batches (batch_id, day, position, first_index)
        SELECT batch_ids[f.i], today, head + 1, sum(counts[f.i]) OVER (ORDER BY f.i) - counts[f.i]
          FROM unnest(fresh) AS f (i);
        UPDATE log_head SET position = head + 1, points = before + added WHERE log = 'datapoints';
    END IF;
    RETURN QUERY
        SELECT b.position, b.day, b.first_index, n.idx::int <> ALL (fresh)
          FROM unnest(batch_ids) WITH ORDINALITY AS n (id, idx)
          JOIN LATERAL (SELECT * FROM datapoint_batches b
                         WHERE b.batch_id = n.id AND b.day BETWEEN today - 1 AND today + 1 LIMIT 1) b ON true
         ORDER BY n.idx;
END $$;
