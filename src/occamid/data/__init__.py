"""Records of a system: channels, scaling, lagged regressors, lags to try, simulated twins."""
