"""Linear models by their own estimators: ARX, ARMAX, output error, subspace."""
