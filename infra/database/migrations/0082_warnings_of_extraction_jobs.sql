-- What could not be done in a document that was read, in sentences.
ALTER TABLE read.extraction_jobs ADD COLUMN warnings text[] NOT NULL DEFAULT '{}';
