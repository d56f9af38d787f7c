"""docs/results.md, made of the JSON files of finished runs."""
