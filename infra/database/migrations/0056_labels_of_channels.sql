-- Labels that channels are found by, and what users wrote about them. Constant defaults, so no row is rewritten.
ALTER TABLE read.channels
    ADD COLUMN labels jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN description text;
