"""Records: data containers, scaling, simulated twins."""
