"""The sparse Bayesian loop: training, curvature, evidence."""
