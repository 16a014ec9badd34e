-- Replication slots and standbys that keep old rows, and since when each has kept the same ones: PostgreSQL tells their
-- transaction, and not its time.
CREATE TABLE ops.snapshot_holders (
    holder text PRIMARY KEY,
    oldest xid         NOT NULL,
    since  timestamptz NOT NULL
);
