-- The alarms of messages to contacts.
ALTER TABLE read.deliveries
    ADD COLUMN alarm_ids uuid[],
    ADD COLUMN alarm_kinds text[];

-- Steps of alarms that wait to be sent to a contact.
CREATE TABLE ops.notices (
    contact_id uuid        NOT NULL,
    alarm_id   uuid        NOT NULL,
    kind       text        NOT NULL,
    number     int         NOT NULL, -- of this kind and alarm
    severity   text        NOT NULL,
    arrived_at timestamptz NOT NULL,
    PRIMARY KEY (contact_id, alarm_id, kind, number)
);
CREATE INDEX notices_waiting ON ops.notices (contact_id, arrived_at);

-- Alarms that fire, until they are cleared.
CREATE TABLE ops.notified_alarms (
    alarm_id        uuid PRIMARY KEY,
    rule_id         uuid    NOT NULL,
    severity        text    NOT NULL,
    remind_at       timestamptz,
    reminders       int     NOT NULL DEFAULT 0,
    escalate_at     timestamptz,
    is_escalated    boolean NOT NULL DEFAULT false,
    is_acknowledged boolean NOT NULL DEFAULT false
);
CREATE INDEX notified_alarms_due ON ops.notified_alarms (least(remind_at, escalate_at)) WHERE NOT is_acknowledged;

-- When a contact's last message was composed.
CREATE TABLE ops.contact_messages (
    contact_id  uuid PRIMARY KEY,
    composed_at timestamptz NOT NULL
);

-- Messages that were composed, until they are recorded in the log.
CREATE TABLE ops.message_outbox (
    id          uuid PRIMARY KEY,
    message     jsonb       NOT NULL,
    composed_at timestamptz NOT NULL
);

-- Alarms from before are over, or known.
INSERT INTO ops.relay_checkpoint (relay, position)
SELECT 'notifications', position FROM log_head WHERE log = 'events' ON CONFLICT DO NOTHING;
