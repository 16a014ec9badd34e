-- no-transaction
CREATE INDEX CONCURRENTLY extraction_jobs_kept ON read.extraction_jobs (created_at, id) WHERE kept;
