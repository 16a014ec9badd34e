-- Ways into the log besides position and stream, written beside it and after it: which events of a stretch of the log have
-- this value. `field` is `stream_type`, `event_type`, `actor` or `correlation`.
CREATE TABLE log_index (
    field          text     NOT NULL,
    value          text     NOT NULL,
    first_position bigint   NOT NULL, -- of the stretch
    positions      bigint[] NOT NULL,
    PRIMARY KEY (field, value, first_position)
);
-- How far the log is in it.
CREATE TABLE log_index_progress (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint NOT NULL
);
INSERT INTO log_index_progress (position) VALUES (0);

-- The hash chain beside the log (docs/adr/0018-hash-chain.md): for each event the hash of it and of all before it, 32 bytes
-- each, many events in one row. A row is written once.
CREATE TABLE log_chain (
    first_position bigint PRIMARY KEY,
    last_position  bigint      NOT NULL UNIQUE,
    hashes         bytea       NOT NULL,
    written_at     timestamptz NOT NULL,
    CHECK (first_position > 0 AND octet_length(hashes) = 32 * (last_position - first_position + 1))
);
-- Hashes do not compress.
ALTER TABLE log_chain ALTER hashes SET STORAGE EXTERNAL;
CREATE TRIGGER log_chain_append_only BEFORE UPDATE OR DELETE ON log_chain
    FOR EACH ROW EXECUTE FUNCTION forbid_change();
CREATE TRIGGER log_chain_no_truncate BEFORE TRUNCATE ON log_chain
    FOR EACH STATEMENT EXECUTE FUNCTION forbid_change();

-- automation: what webhooks were told of an event.
CREATE INDEX deliveries_event ON read.deliveries (event_id);
