-- A transfer whose file its owner uploads has no source agent.
ALTER TABLE read.transfers ALTER COLUMN source_agent_id DROP NOT NULL;
ALTER TABLE read.transfers ALTER COLUMN source_agent_number DROP NOT NULL;
