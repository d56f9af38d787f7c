"""How good a prediction is: errors, scores of bands, residual analysis."""
