-- Ways into the log besides position and stream: what people ask for, in the order of the log.
CREATE INDEX events_aggregate_type ON events (aggregate_type, position);
CREATE INDEX events_event_type ON events (event_type, position);
CREATE INDEX events_actor ON events ((metadata->>'actor'), position);
CREATE INDEX events_correlation ON events ((metadata->>'correlation'), position);

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
