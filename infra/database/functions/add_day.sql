-- Revision 1
-- A day is made apart and then attached: that locks neither readers nor writers of the table. As `PARTITION OF` locks the
-- whole table, an append that made a day and a fold that read the log and needed a day too waited for each other.
CREATE OR REPLACE FUNCTION add_day(parent regclass, wanted date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part text := (SELECT relname FROM pg_class WHERE oid = parent) || to_char($2, '"_"YYYYMMDD');
    place text := (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = parent);
BEGIN
    IF to_regclass(format('%s.%I', place, part)) IS NOT NULL THEN
        RETURN;
    END IF;
    -- Held by one at a time; getting it also shows what the one before has made.
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', parent);
    IF to_regclass(format('%s.%I', place, part)) IS NULL THEN
        EXECUTE format('CREATE TABLE %s.%I (LIKE %s INCLUDING ALL)', place, part, parent);
        EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s.%I FOR VALUES FROM (%L) TO (%L)',
                       parent, place, part, $2, $2 + 1);
    END IF;
END $$;
