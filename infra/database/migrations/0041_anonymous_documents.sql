-- What is kept for callers without a login, by their network, so that none of them fills the disk.
CREATE TABLE ops.anonymous_jobs (
    job_id   uuid PRIMARY KEY,
    network  text        NOT NULL, -- an IPv4 address or an IPv6 /64
    size     bigint      NOT NULL, -- bytes of the document, which count until the read model shows the job
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX anonymous_jobs_network ON ops.anonymous_jobs (network);
ALTER TABLE ops.extraction_cache ADD COLUMN network text; -- null for logged-in users
