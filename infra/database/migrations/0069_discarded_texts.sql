-- no-transaction
CREATE INDEX CONCURRENTLY extraction_jobs_discarded ON read.extraction_jobs (id) WHERE discarded;
