-- Settings that make a rule's condition a state, what an alarm was judged by before changes, and the silence of its webhooks.
ALTER TABLE read.rules
    ADD COLUMN alarm jsonb,
    ADD COLUMN watched jsonb NOT NULL DEFAULT '[]', -- what its alarms are judged by, with the places of changes
    ADD COLUMN silenced_until timestamptz,
    ADD COLUMN silence_comment text;
