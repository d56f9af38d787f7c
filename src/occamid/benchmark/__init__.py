"""The paper's experiments and baselines, run under two protocols and written up as tables."""
