-- identity: whether a token is a controller's, which reads the secrets of plugin instances; null for tokens of earlier versions
-- that have not been seen to be one.
ALTER TABLE read.api_tokens ADD COLUMN controller boolean;

-- The browser that a code of single sign-on was made for: SHA-256 of the secret in its cookie.
ALTER TABLE ops.login_codes ADD COLUMN browser_sha256 text;
