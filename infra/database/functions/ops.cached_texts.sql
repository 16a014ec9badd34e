-- Revision 1
-- The texts that are remembered for those who send the same document, by the network of callers without a login. The table is that
-- of infra/texts.
CREATE OR REPLACE FUNCTION ops.cached_texts() RETURNS TABLE (network text, size bigint) LANGUAGE sql STABLE
    AS $$ SELECT network, size FROM ops.extraction_cache $$;
