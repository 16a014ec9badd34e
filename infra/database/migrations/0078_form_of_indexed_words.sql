-- In which form the words of a document are indexed: 1 is folded. A process of an earlier release fills the index as it did, and leaves
-- the default: the worker writes such documents again.
ALTER TABLE ops.indexed_documents ADD COLUMN form int NOT NULL DEFAULT 0;
