-- Texts of jobs that are kept until their owner deletes them, and the index that they are searched by. A worker fills the index from
-- the texts in the blob store: it is derived, and rows that are missing are written again.
ALTER TABLE read.extraction_jobs
    ADD COLUMN kept boolean NOT NULL DEFAULT false,
    ADD COLUMN discarded boolean NOT NULL DEFAULT false; -- deleted by its owner, while its files are still to be removed

CREATE TABLE ops.document_sections (
    job_id uuid     NOT NULL,
    number int      NOT NULL,
    page   int,               -- none of documents without pages
    texts  text[]   NOT NULL, -- of blocks
    boxes  jsonb    NOT NULL, -- of each of them; null where there is none
    words  tsvector NOT NULL,
    PRIMARY KEY (job_id, number)
);
CREATE INDEX document_sections_words ON ops.document_sections USING gin (words);

-- Documents whose sections are written.
CREATE TABLE ops.indexed_documents (
    job_id     uuid PRIMARY KEY,
    sections   int         NOT NULL,
    indexed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
