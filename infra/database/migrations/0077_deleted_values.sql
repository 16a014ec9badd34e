-- Whether the datapoints of a deleted channel go with it.
ALTER TABLE read.channels ADD COLUMN values_deleted boolean NOT NULL DEFAULT false;
CREATE INDEX channels_values_deleted ON read.channels (number) WHERE values_deleted;
