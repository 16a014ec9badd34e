-- Deleted by its owner: the row stays for what was, as of a moment, and until its files are gone.
ALTER TABLE read.extraction_jobs ADD COLUMN deleted boolean NOT NULL DEFAULT false;
