-- Subscriptions: when failed attempts are repeated, the key pair that signs by `v1a`, the replaced secret and key that sign too
-- until a time, and filters. Rows that are there have the defaults.
ALTER TABLE read.webhooks
    ADD COLUMN retry text NOT NULL DEFAULT 'default',
    ADD COLUMN sealed_key text,
    ADD COLUMN public_key text,
    ADD COLUMN previous jsonb,
    ADD COLUMN filters jsonb NOT NULL DEFAULT '{}';

-- Batches that worker processes send now, where more than one does; see workers/src/webhooks/slots.rs. A row whose request has
-- ended stays until the read model shows its result.
CREATE UNLOGGED TABLE ops.webhook_slots (
    batch_id   uuid PRIMARY KEY,
    webhook_id uuid        NOT NULL,
    holder     uuid        NOT NULL,
    until      timestamptz NOT NULL,
    is_sending boolean     NOT NULL
);
