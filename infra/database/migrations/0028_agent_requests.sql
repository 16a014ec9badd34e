-- What users should know of an agent, e.g. that two processes use its token.
ALTER TABLE read.agents ADD COLUMN warning text;

-- Requests of transfers that agents have taken charge of. An agent without capabilities is not asked for the same leg again before
-- its session or the leg's HTTP body has ended, one with capabilities not within a minute.
CREATE TABLE ops.agent_requests (
    agent_id uuid        NOT NULL,
    transfer bigint      NOT NULL, -- the integer that clients see
    leg      text        NOT NULL, -- upload or download
    attempt  int         NOT NULL,
    session  uuid,                 -- in which it was taken
    taken_at timestamptz NOT NULL,
    ended    boolean     NOT NULL, -- its HTTP body has ended since
    PRIMARY KEY (agent_id, transfer, leg)
);
CREATE INDEX agent_requests_taken ON ops.agent_requests (taken_at);
