-- When an agent's session ended, until it connects again or its absence is recorded.
ALTER TABLE read.agents ADD COLUMN away_since timestamptz;
UPDATE read.agents SET away_since = last_seen WHERE session IS NULL AND status = 'offline';
