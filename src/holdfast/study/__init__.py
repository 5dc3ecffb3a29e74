"""Several runs together: seeds, variants, searches, best responses."""
