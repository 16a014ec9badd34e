-- Revision 1
-- An index takes no text longer than 2,700 bytes, so long texts are indexed by their digest. `convert_to` is not immutable in
-- general; it is in a database whose encoding is UTF8.
CREATE OR REPLACE FUNCTION read.text_key(text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT sha256(convert_to($1, 'UTF8')) $$;
