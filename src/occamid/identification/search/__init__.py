"""Search: many settings tried on held-back data, error against size, one of them fitted."""
