-- Revision 1
-- Rows of the datapoint log change in one way: places of removed values become empty. A row keeps its length and its place.
CREATE OR REPLACE FUNCTION forbid_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME LIKE 'datapoint\_log%' AND TG_OP = 'UPDATE' AND current_setting('signalbox.clearing', true) = 'on' THEN
        IF (NEW.position, NEW.day, NEW.recorded_at, NEW.kind, NEW.points, NEW.total)
            = (OLD.position, OLD.day, OLD.recorded_at, OLD.kind, OLD.points, OLD.total) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'the event log is append-only: % is forbidden', TG_OP;
END $$;
