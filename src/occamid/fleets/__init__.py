"""Fleets: one model for each of many assets, on a machine or a cluster, and a page over all."""
