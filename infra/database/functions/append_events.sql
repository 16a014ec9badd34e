-- Revision 1
-- Appends the events of several commands in one transaction and returns the outcome of each command:
-- `appended`, `duplicate` (answered before, with version and position of then), `conflict` (another command
-- came first) or `claim` (`detail` is `<op>:<kind>` of the claim that failed).
--
-- The caller sees to it that no two commands of one call share a command id or a stream, and that none writes a
-- claim that another one reads or writes. `claim_commands` and `event_commands` are 1-based indexes of commands;
-- events come in the order of their commands.
--
-- The head row is locked first: every later statement takes a new snapshot, and so sees all that earlier appends
-- have committed. Index scans are enforced, because the plans are made when the tables are still empty.
--
-- The statements are the same for every batch. Without a generic plan, PostgreSQL plans them anew for each length of its arrays,
-- which costs more than carrying them out; and those that have nothing to do are left out.
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
            -- Of several that fail, the caller learns the first.
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
