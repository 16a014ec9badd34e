-- Answers that are kept for repeated requests may show secrets: a plugin's key, a callback's. They are sealed as a whole in
-- `sealed_answer`; `sealed_secret` is the request's own random secret, from which the tokens follow that its answer shows.
-- The columns status, content_type, location and body are not written any longer. What they held is removed: a repetition of
-- those requests runs again with the same seed, and the log recognises its commands.
ALTER TABLE ops.idempotent_requests ADD COLUMN sealed_answer text, ADD COLUMN sealed_secret text;
UPDATE ops.idempotent_requests SET status = NULL, content_type = NULL, location = NULL, body = NULL WHERE status IS NOT NULL;
