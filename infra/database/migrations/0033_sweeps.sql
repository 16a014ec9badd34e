-- The time that sweeps delete by. It follows the clocks, and a leap of them by two days at most in an hour in which the server
-- runs: a wrong clock that all processes share is seen before it has cost more than that (docs/adr/0030-wrong-clocks-and-long-snapshots.md).
CREATE TABLE ops.sweep_clock (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    reached        timestamptz NOT NULL,
    server_started timestamptz NOT NULL, -- of the server that saw the last leap
    leapt_at       bigint      NOT NULL  -- seconds that it had run by then
);

-- When retention dropped days of datapoints last.
CREATE TABLE ops.retention_runs (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    server_started timestamptz NOT NULL,
    ran_at         bigint      NOT NULL  -- seconds that the server had run by then
);
