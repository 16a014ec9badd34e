-- no-transaction
CREATE UNIQUE INDEX CONCURRENTLY transfer_files_name ON read.transfer_files (transfer_id, read.text_key(name));
