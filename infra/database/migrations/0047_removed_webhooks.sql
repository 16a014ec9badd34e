-- Webhooks that are deleted and whose deliveries are still being removed. The fold of a deletion removes as many as one short
-- statement can; a worker removes the others.
CREATE TABLE read.removed_webhooks (
    id uuid PRIMARY KEY
);
