-- Which trace brought a batch of datapoints, for the rules that fire on it; only of batches whose trace is recorded, and only
-- for an hour or two.
CREATE TABLE ops.datapoint_traces (
    position    bigint      NOT NULL,
    first_index int         NOT NULL,
    points      int         NOT NULL,
    traceparent text        NOT NULL,
    noted_at    timestamptz NOT NULL,
    PRIMARY KEY (position, first_index)
);
