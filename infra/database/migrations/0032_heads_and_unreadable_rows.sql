-- Every append locks the head row and writes a new version of it. PostgreSQL cannot prune old versions while any snapshot is
-- open (a backup, a report, a standby with feedback), and an append then walked through all of them: 2.9 ms became 8.8 ms after
-- 110,000 commits. With the position in the key, each version has an index entry of its own, the newest one is the last, and
-- a backward scan meets it first, however many old versions there are (docs/adr/0030-wrong-clocks-and-long-snapshots.md).
ALTER TABLE log_head DROP CONSTRAINT log_head_pkey;
ALTER TABLE log_head ADD PRIMARY KEY (log, position);

-- Rows of the datapoint log that no program could decode. Folds and queries continue past them; answers that touch them say so.
CREATE TABLE ops.unreadable_rows (
    position bigint      PRIMARY KEY,
    day      date        NOT NULL,
    reason   text        NOT NULL,
    found_at timestamptz NOT NULL DEFAULT now()
);

-- As in 0006, but for the head.
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
    appended bigint;
    outcomes text[];
    details  text[];
    failed   record;
BEGIN
    SELECT position INTO head FROM log_head WHERE log = 'events' ORDER BY position DESC LIMIT 1 FOR UPDATE;

    SELECT array_agg(CASE WHEN o.command_id IS NOT NULL THEN 'duplicate'
                          WHEN coalesce(s.version, 0) <> c.expected THEN 'conflict'
                          ELSE 'appended' END ORDER BY c.idx),
           array_agg(NULL::text)
      INTO outcomes, details
      FROM unnest(command_ids, command_types, command_streams, command_expected)
           WITH ORDINALITY AS c (id, type, stream, expected, idx)
      LEFT JOIN command_outcomes o ON o.command_id = c.id
      LEFT JOIN LATERAL (SELECT max(sequence) AS version FROM events e
                          WHERE e.aggregate_type = c.type AND e.aggregate_id = c.stream) s ON true;

    IF cardinality(claim_commands) > 0 THEN
        FOR failed IN
            SELECT n.command, n.op, n.kind FROM unnest(claim_commands, claim_ops, claim_kinds, claim_keys)
                   WITH ORDINALITY AS n (command, op, kind, key, idx)
             WHERE outcomes[n.command] = 'appended' AND CASE n.op
                WHEN 'take' THEN EXISTS (SELECT FROM claims c WHERE c.kind = n.kind AND c.key = n.key
                                            AND c.owner <> command_streams[n.command])
                WHEN 'require' THEN NOT EXISTS (SELECT FROM claims c WHERE c.kind = n.kind AND c.key = n.key)
                WHEN 'require_none' THEN EXISTS (SELECT FROM claims c WHERE c.kind = n.kind)
                WHEN 'release_not_last' THEN NOT EXISTS (SELECT FROM claims c WHERE c.kind = n.kind AND c.key <> n.key)
                ELSE false END
             ORDER BY n.idx
        LOOP
            outcomes[failed.command] := 'claim';
            -- Of several that fail, the caller is told the first.
            details[failed.command] := coalesce(details[failed.command], failed.op || ':' || failed.kind);
        END LOOP;

        IF claim_ops && ARRAY['release', 'release_not_last'] THEN
            DELETE FROM claims c USING unnest(claim_commands, claim_ops, claim_kinds, claim_keys) AS n (command, op, kind, key)
             WHERE outcomes[n.command] = 'appended' AND n.op IN ('release', 'release_not_last')
               AND c.kind = n.kind AND c.key = n.key AND c.owner = command_streams[n.command];
        END IF;
        IF 'take' = ANY (claim_ops) THEN
            INSERT INTO claims (kind, key, owner)
            SELECT n.kind, n.key, command_streams[n.command]
              FROM unnest(claim_commands, claim_ops, claim_kinds, claim_keys) AS n (command, op, kind, key)
             WHERE outcomes[n.command] = 'appended' AND n.op = 'take'
                ON CONFLICT DO NOTHING;
        END IF;
    END IF;

    INSERT INTO events (position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload, metadata, recorded_at)
    SELECT head + row_number() OVER (ORDER BY e.idx), command_types[e.command], command_streams[e.command], e.sequence,
           e.type, e.version, e.payload, command_metadata[e.command], now
      FROM unnest(event_commands, event_sequences, event_types, event_versions, event_payloads)
           WITH ORDINALITY AS e (command, sequence, type, version, payload, idx)
     WHERE outcomes[e.command] = 'appended';
    GET DIAGNOSTICS appended = ROW_COUNT;

    IF appended > 0 THEN
        UPDATE log_head SET position = head + appended WHERE log = 'events' AND position = head;
        INSERT INTO command_outcomes (command_id, aggregate_type, aggregate_id, version, position, recorded_at)
        SELECT c.id, c.type, c.stream, c.expected + c.count, head + sum(c.count) OVER (ORDER BY c.idx), now
          FROM unnest(command_ids, command_types, command_streams, command_expected, command_counts)
               WITH ORDINALITY AS c (id, type, stream, expected, count, idx)
         WHERE outcomes[c.idx] = 'appended';
    END IF;

    RETURN QUERY
        SELECT outcomes[c.idx], o.version, o.position, details[c.idx]
          FROM unnest(command_ids) WITH ORDINALITY AS c (id, idx)
          LEFT JOIN command_outcomes o ON o.command_id = c.id
         ORDER BY c.idx;
END $$;

-- As in 0011, but for the head; and a batch is recognised on every day that is kept, because the days come from the clocks of
-- several processes, one of which may be wrong.
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

-- As in 0004, but for the head.
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
