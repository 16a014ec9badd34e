-- Parts of the installation that do not work, reported by the process that noticed. Health, doctor, metrics and log entries
-- are made from this table.
CREATE TABLE ops.faults (
    part        text PRIMARY KEY,      -- such as projection.transfer, worker.cleanup, retention
    since       timestamptz NOT NULL,  -- first report of this fault, by this server's clock
    reported_at timestamptz NOT NULL,  -- latest report; a fault that is no longer reported lapses
    reason      text NOT NULL
);
