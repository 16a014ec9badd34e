-- Documents of jobs whose text a user keeps, which count until the read model shows the job: it does so later than it was submitted.
CREATE TABLE ops.keeping_jobs (
    job_id   uuid PRIMARY KEY,
    owner_id uuid        NOT NULL,
    size     bigint      NOT NULL, -- bytes of the document
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX keeping_jobs_owner ON ops.keeping_jobs (owner_id);
