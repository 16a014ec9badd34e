-- Revision 1
-- The times stay as wide as they were.
CREATE OR REPLACE FUNCTION count_removed_chunks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'UPDATE %I.hours h SET count = h.count - r.count
           FROM (SELECT hour, day, sum(count) AS count FROM removed GROUP BY hour, day) r
          WHERE h.hour = r.hour AND h.day = r.day',
        TG_TABLE_SCHEMA);
    RETURN NULL;
END $$;
