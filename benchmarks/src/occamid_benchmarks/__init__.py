"""The paper's experiments, the baselines of its tables and the real records, beside occamid.

``registry`` has the five real records, ``experiments`` the ten rows of the paper's Table 1.
``reproduce`` runs a row under one protocol, ``baselines`` the models to compare with,
``automatic`` what ``occamid identify`` makes of the same records; all three leave JSON files, of
which ``tables`` writes docs/results.md.  ``suite`` does the same on ten more records, beside peers;
``peers`` are other people's models, and run where occamid is not installed.
``studies`` prints the figures of the other documents, ``commands`` is what the command line offers.
"""

from pathlib import Path

RESULTS = Path("benchmarks/results")  # from the root of a checkout, where all commands are given
