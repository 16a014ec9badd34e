-- Revision 1
-- The points of each hour, and the triggers that count them.
CREATE OR REPLACE FUNCTION create_hours(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I.hours (
        hour int NOT NULL, day date NOT NULL, count bigint NOT NULL, min_time bigint NOT NULL, max_time bigint NOT NULL,
        PRIMARY KEY (hour, day))', place);
    EXECUTE format('CREATE TRIGGER chunks_added AFTER INSERT ON %I.chunks REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT EXECUTE FUNCTION count_added_chunks()', place);
    EXECUTE format('CREATE TRIGGER chunks_removed AFTER DELETE ON %I.chunks REFERENCING OLD TABLE AS removed
        FOR EACH STATEMENT EXECUTE FUNCTION count_removed_chunks()', place);
    EXECUTE format('INSERT INTO %I.hours SELECT hour, day, sum(count), min(min_time), max(max_time) FROM %I.chunks
        GROUP BY hour, day', place, place);
END $$;
