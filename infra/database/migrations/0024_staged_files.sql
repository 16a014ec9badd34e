-- Files that gateways receive, from before their first byte comes until a day later, when a sweep removes those that the log
-- does not refer to. Only a sweep takes a row away, and it holds the row while it removes the file.
CREATE TABLE ops.staged_files (
    id             uuid PRIMARY KEY,     -- names the file in the blob store
    aggregate_type text,                 -- whose events may refer to it; null before a command says so
    aggregate_id   uuid,
    noted_at       timestamptz NOT NULL,
    CHECK ((aggregate_type IS NULL) = (aggregate_id IS NULL))
);
CREATE INDEX staged_files_noted ON ops.staged_files (noted_at);
