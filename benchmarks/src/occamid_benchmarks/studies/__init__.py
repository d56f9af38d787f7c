"""Programs that print the figures of the documents, from the root of a checkout."""
