"""Established models to compare with, and what they reach on the real records."""
