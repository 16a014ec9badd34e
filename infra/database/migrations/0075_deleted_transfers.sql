-- Deleted by its owner: the row stays for what was, as of a moment, and until the staged bytes are gone.
ALTER TABLE read.transfers ADD COLUMN deleted boolean NOT NULL DEFAULT false;
