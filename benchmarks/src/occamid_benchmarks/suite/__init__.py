"""Fifteen real records under one protocol, so that nothing is tuned to a few of them.

``records`` reads and splits them, ``peers`` fits established models to the same rows, ``others``
asks those that live in an environment of their own, ``measure`` identifies, judges and writes one
JSON file for each record, effort and seed, ``table`` makes a document of those files.
"""
