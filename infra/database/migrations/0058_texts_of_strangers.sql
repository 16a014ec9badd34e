-- The text of a job without a login counts from before it is written; the read model shows it later.
ALTER TABLE ops.anonymous_jobs ADD COLUMN text_size bigint NOT NULL DEFAULT 0;
