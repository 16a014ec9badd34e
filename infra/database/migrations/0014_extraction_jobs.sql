-- extraction: documents that are read in the background.
CREATE TABLE read.extraction_jobs (
    id              uuid PRIMARY KEY,
    owner_id        uuid,                 -- none of what was sent without a login
    filename        text        NOT NULL,
    size            bigint      NOT NULL,
    sha256          text        NOT NULL,
    input_id        uuid        NOT NULL, -- names the document in the blob store
    options         jsonb       NOT NULL,
    callback_url    text,
    status          text        NOT NULL,
    attempts        int         NOT NULL,
    due_at          timestamptz,          -- when a worker may begin it; none when it has ended
    claim           uuid,
    claims          uuid[]      NOT NULL, -- all that there were; each may have left a text in the blob store
    pages_done      int         NOT NULL,
    page_count      int,
    mime_type       text,
    error           text,
    error_code      text,
    result_id       uuid,                 -- names the text in the blob store
    result_size     bigint,
    extractor_used  text,
    ocr_engine_used text,
    confidence      real,
    cached          boolean     NOT NULL,
    milliseconds    bigint,
    input_kept      boolean     NOT NULL,
    result_kept     boolean     NOT NULL,
    version         bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    started_at      timestamptz,
    ended_at        timestamptz,
    updated_at      timestamptz NOT NULL
);
CREATE INDEX extraction_jobs_owner ON read.extraction_jobs (owner_id, created_at, id);
CREATE INDEX extraction_jobs_due ON read.extraction_jobs (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX extraction_jobs_queued ON read.extraction_jobs (id) WHERE status = 'queued';
CREATE INDEX extraction_jobs_input ON read.extraction_jobs (ended_at, id) WHERE input_kept AND ended_at IS NOT NULL;
CREATE INDEX extraction_jobs_result ON read.extraction_jobs (ended_at, id) WHERE result_kept;

-- automation: what somebody is told once, who has no subscription. The consignment knows where it goes.
ALTER TABLE read.consignments ADD COLUMN url text, ADD COLUMN sealed_secret text;
ALTER TABLE read.deliveries ADD COLUMN is_callback boolean NOT NULL DEFAULT false;
ALTER TABLE read.deliveries ALTER COLUMN is_callback DROP DEFAULT;
CREATE INDEX deliveries_callback ON read.deliveries (due_at, position) WHERE is_callback AND due_at IS NOT NULL;

-- What documents gave, for those who send the same bytes with the same options. The texts are in the blob store.
CREATE TABLE ops.extraction_cache (
    key        text PRIMARY KEY,
    blob_id    uuid        NOT NULL,
    size       bigint      NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX extraction_cache_created ON ops.extraction_cache (created_at);
