-- Values of ways in whose senders repeat them in other batches, for 24 h, in place of ops.recent_values: a row has those that one
-- batch brings to a cell of 64 channels and 2^26 microseconds (67 s). The row is committed before the batch, so a batch that its
-- sender did not end is completed from its rows.
CREATE TABLE ops.recent_cells (
    -- Channels that have all bits but the last six in common, by these.
    channels    int         NOT NULL,
    -- Times that have all bits but the last 26 in common, by these.
    slot        bigint      NOT NULL,
    -- Of its values.
    first_time  bigint      NOT NULL,
    last_time   bigint      NOT NULL,
    -- A bit for each of the 64 channels that has values.
    bits        bigint      NOT NULL,
    batch_id    uuid        NOT NULL,
    reserved_at timestamptz NOT NULL,
    -- In their order in the batch, 13 bytes each: the channel's last bits, the time's, the value.
    points      bytea       NOT NULL,
    PRIMARY KEY (channels, slot, last_time, batch_id)
);
-- Random values do not become smaller.
ALTER TABLE ops.recent_cells ALTER COLUMN points SET STORAGE EXTERNAL;
CREATE INDEX recent_cells_batch ON ops.recent_cells (batch_id);
CREATE INDEX recent_cells_age ON ops.recent_cells USING brin (reserved_at);
