-- Revision 1
-- Drops the partitions of a table that hold days before `oldest`; gives back how many. It gives up before readers that
-- come after it would have to wait long.
-- Everybody who reads datapoints queues behind one who waits to drop a day; it is tried again instead.
CREATE OR REPLACE FUNCTION drop_days(parent regclass, oldest date) RETURNS int LANGUAGE plpgsql SET lock_timeout = '250ms' AS $$
DECLARE
    part record;
    dropped int := 0;
BEGIN
    FOR part IN
        SELECT c.oid::regclass AS name, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = parent
    LOOP
        IF to_date(right(part.relname, 8), 'YYYYMMDD') < oldest THEN
            EXECUTE format('DROP TABLE %s', part.name);
            dropped := dropped + 1;
        END IF;
    END LOOP;
    RETURN dropped;
END $$;
