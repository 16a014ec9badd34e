-- How far a download without a digest in its report was served: from the start, without a gap, of the file with this digest.
ALTER TABLE ops.transfer_legs
    ADD COLUMN served_to bigint NOT NULL DEFAULT 0,
    ADD COLUMN served_of text;
