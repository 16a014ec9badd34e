-- Files that gateways receive, from before their first byte comes until a sweep judges them: what the log does not refer to by
-- then is removed.
CREATE TABLE ops.staged_files (
    id             uuid PRIMARY KEY,     -- names the file in the blob store
    aggregate_type text,                 -- whose events may refer to it; null before a command says so
    aggregate_id   uuid,
    noted_at       timestamptz NOT NULL,
    given_up       boolean     NOT NULL DEFAULT false, -- from now on no command may name it
    CHECK ((aggregate_type IS NULL) = (aggregate_id IS NULL))
);
CREATE INDEX staged_files_noted ON ops.staged_files (noted_at);
