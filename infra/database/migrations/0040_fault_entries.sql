-- Faults of ops.faults that have an entry in the log for people, so that each fault and each recovery gets one.
CREATE TABLE ops.fault_entries (
    part  text PRIMARY KEY,
    since timestamptz NOT NULL
);

-- When a worker last looked for parts that do not work. Without one, only what processes report themselves is known.
CREATE TABLE ops.fault_checks (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    checked_at timestamptz NOT NULL
);
