"""Doubt: posteriors, their way through a free run, ensembles, calibration."""
