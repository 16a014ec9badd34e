-- How far the datapoint log has been read for reports of values: all rows up to `position` were reported, or need not be.
-- Null until the worker has found where its readers' interest begins.
ALTER TABLE ops.readings_wanted ADD position bigint, ADD day date, ADD total bigint;
