-- Which script of infra/database/functions each function is from: it is applied again when it has changed.
CREATE TABLE ops.sql_functions (
    name       text        PRIMARY KEY,
    revision   int         NOT NULL,
    checksum   bytea       NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
