-- identity: who a user is at an OpenID provider, and who deleted users were there.
ALTER TABLE read.users
    ADD COLUMN sso_issuer  text,
    ADD COLUMN sso_subject text;
CREATE INDEX users_identity ON read.users (sso_issuer, sso_subject) WHERE sso_issuer IS NOT NULL;

CREATE TABLE read.removed_identities (
    id      uuid PRIMARY KEY, -- of the user
    issuer  text NOT NULL,
    subject text NOT NULL
);
CREATE INDEX removed_identities_identity ON read.removed_identities (issuer, subject);

-- Codes that a front end exchanges for a login, once; their hashes alone.
CREATE TABLE ops.login_codes (
    code_sha256 text PRIMARY KEY,
    user_id     uuid        NOT NULL,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX login_codes_expiry ON ops.login_codes (expires_at);
