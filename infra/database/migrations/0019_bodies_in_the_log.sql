-- What is posted is in the log, in the event that queued it, and is read there. A process of an earlier version fails here
-- rather than post nothing.
ALTER TABLE read.deliveries DROP COLUMN body;
