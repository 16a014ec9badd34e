-- What gateways observe of legs under way, beside the log. To lose it costs time and repeated work, never a file.
CREATE TABLE ops.transfer_legs (
    transfer_id   uuid        NOT NULL,
    leg           text        NOT NULL,     -- upload or download
    attempt       integer     NOT NULL,
    session       uuid,                     -- of the agent: the body began in this session, or the agent named the leg in it
    body_ended_at timestamptz,              -- when the last HTTP body ended; null while one is under way
    arrived_in    uuid,                     -- the session in which the destination's TCP acknowledged all bytes
    polled_at     timestamptz,              -- when the agent polled after that, in that session
    noted_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (transfer_id, leg)
);
CREATE INDEX transfer_legs_noted ON ops.transfer_legs (noted_at);
-- Every poll looks here.
CREATE INDEX transfer_legs_awaiting_poll ON ops.transfer_legs (arrived_in) WHERE arrived_in IS NOT NULL AND polled_at IS NULL;
