-- Values of ways in whose senders repeat them in other batches, for 24 h: one row for each, with the batch that brings it to the
-- log. The row is committed before the batch, so a batch that its sender did not end is completed from its rows.
CREATE TABLE ops.recent_values (
    channel     int              NOT NULL,
    time        bigint           NOT NULL,
    value       double precision NOT NULL,
    batch_id    uuid             NOT NULL,
    -- Its place among the values of the batch.
    place       int              NOT NULL,
    reserved_at timestamptz      NOT NULL,
    PRIMARY KEY (channel, time, value)
);
CREATE INDEX recent_values_batch ON ops.recent_values (batch_id);
CREATE INDEX recent_values_age ON ops.recent_values USING brin (reserved_at);
