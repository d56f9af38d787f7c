"""Fits: the paper's sparse Bayesian loop over a batch of networks, and refinement in free run."""
