-- no-transaction
CREATE INDEX CONCURRENTLY deliveries_alarms ON read.deliveries USING gin (alarm_ids) WHERE alarm_ids IS NOT NULL;
