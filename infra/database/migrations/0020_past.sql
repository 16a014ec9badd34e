-- What service 1 calls by integers and is gone: its past can still be asked for.
CREATE TABLE read.removed_numbers (
    id       uuid PRIMARY KEY,
    kind     text   NOT NULL, -- `agent` or `job`
    number   bigint NOT NULL,
    owner_id uuid             -- none for what belongs to everybody
);
CREATE INDEX removed_numbers_number ON read.removed_numbers (kind, number);

-- Since when a subscription's deliveries had failed, from each event on that changed this.
CREATE TABLE read.webhook_spells (
    webhook_id    uuid   NOT NULL,
    position      bigint NOT NULL,
    failing_since timestamptz,
    PRIMARY KEY (webhook_id, position)
);

-- The newest transfers of a job up to a time.
CREATE INDEX transfers_job_created ON read.transfers (job_id, created_at, id) WHERE job_id IS NOT NULL;
