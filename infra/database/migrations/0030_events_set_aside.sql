-- A stream is set aside from the first event that a projection cannot apply (docs/adr/0029-events-set-aside.md): the row names
-- that event, and the later events of the stream wait behind it. Rows of earlier versions concern one event alone: the later
-- events of its stream were applied.
ALTER TABLE read.poisonous_events
    ADD aggregate_type text,
    ADD aggregate_id   text,
    ADD sequence       bigint,
    ADD event_type     text,
    ADD alone          boolean     NOT NULL DEFAULT true,
    ADD attempts       int         NOT NULL DEFAULT 0,
    ADD retry_at       timestamptz NOT NULL DEFAULT now();
UPDATE read.poisonous_events p
   SET (aggregate_type, aggregate_id, sequence, event_type) = (e.aggregate_type, e.aggregate_id, e.sequence, e.event_type)
  FROM events e WHERE e.position = p.position;
CREATE INDEX poisonous_events_stream ON read.poisonous_events (projection, aggregate_type, aggregate_id);

-- Grows when rows change without a new event: readers that remember rows by position read all of them again.
ALTER TABLE read.checkpoints ADD revision bigint NOT NULL DEFAULT 0;

-- An index takes no text longer than 2,700 bytes, so long texts are indexed by their digest. `convert_to` is not immutable in
-- general; it is in a database whose encoding is UTF8.
CREATE FUNCTION read.text_key(text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT sha256(convert_to($1, 'UTF8')) $$;
-- The key refused names longer than that; the next migration makes its successor, alone because it does so concurrently. The
-- projection that writes the table starts after both.
ALTER TABLE read.transfer_files DROP CONSTRAINT transfer_files_pkey;
