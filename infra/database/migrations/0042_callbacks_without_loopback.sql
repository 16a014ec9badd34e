-- Callbacks that callers without a login named may be kept from reaching this machine.
ALTER TABLE read.consignments ADD COLUMN no_loopback boolean NOT NULL DEFAULT false;
