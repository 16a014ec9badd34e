-- automation: what of each channel's values webhooks were told last. The key is the channel's.
CREATE TABLE read.readings (
    id          uuid PRIMARY KEY,
    position    bigint      NOT NULL, -- in the datapoint log
    index       bigint      NOT NULL,
    reported_at timestamptz NOT NULL,
    version     bigint      NOT NULL
);

-- Since when somebody wants to be told of values; empty while nobody does.
CREATE TABLE ops.readings_wanted (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    since timestamptz NOT NULL
);
