-- fleet: a configuration says how it is kept, because it may hold passwords: {"sealed": …} or, of older events, {"plain": …}.
ALTER TABLE read.plugin_instances
    ALTER COLUMN config TYPE jsonb
    USING CASE WHEN config IS NOT NULL THEN jsonb_build_object('plain', config) END;

-- Which controller runs an instance, so that no other does.
CREATE TABLE ops.plugin_claims (
    instance_id uuid PRIMARY KEY,
    controller  text        NOT NULL,
    until       timestamptz NOT NULL -- afterwards another one may have it
);
CREATE INDEX plugin_claims_controller ON ops.plugin_claims (controller);
