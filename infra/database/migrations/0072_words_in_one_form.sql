-- Words of kept texts are folded before they are indexed: the worker writes the index again.
DELETE FROM ops.indexed_documents;
