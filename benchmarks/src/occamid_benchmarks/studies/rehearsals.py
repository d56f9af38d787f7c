"""The whole program, rehearsed: ``python -m occamid_benchmarks.studies.rehearsals [RECORD …]``.

A rehearsal identifies from four fifths of every *estimation* record, one after another without the
last and without the first fifth, and is judged on that fifth; no test record is read.  So what the
program chooses and says about itself can be weighed before a test is looked at.  ``RECORD …``
writes ``rehearsals/RECORD-FIFTH.json`` among the results, with what ``suite`` writes of a test;
without one the table of docs/accuracy.md is printed from what is there.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from occamid.data.record import Record
from occamid_benchmarks import RESULTS
from occamid_benchmarks.suite import records as suite
from occamid_benchmarks.suite.measure import put, run_seed
from occamid_benchmarks.suite.records import Case

FOLDER = RESULTS / "rehearsals"
SHARE = 5  # one row in so many is judged on
FIFTHS = ("last", "first")


def rehearsal(case: Case, fifth: str) -> Case:
    """The same process with a fifth of its estimation data as its test."""

    def cut(record: Record) -> tuple[Record, Record]:
        rows = len(record) // SHARE
        if fifth == "last":
            return record[: len(record) - rows], record[len(record) - rows :]
        return record[rows:], record[:rows]

    parts = [cut(record) for record in case.estimation]
    learned, judged = (tuple(side) for side in zip(*parts, strict=True))
    return case._replace(estimation=learned, test=judged)


def table() -> str:
    """Markdown, a line for each rehearsal: what was said, and what came of it."""
    lines = ["| record | fifth | family | error | expected / error | within | 95 % band |"]
    lines.append("|---|---|---|---|---|---|---|")
    ratios: list[float] = []
    inside: list[bool] = []
    for path in sorted(FOLDER.glob("*.json")):
        found = json.loads(path.read_text("utf-8"))
        low, high = np.transpose(found["expected_interval"])
        for test in found["tests"]:
            error = np.array(test["rmse"])
            within = ((low <= error) & (error <= high)).tolist()
            ratios.append(test["expected_over_test"])
            inside += within
            lines.append(
                f"| {found['record']} | {found['fifth']} | {found['family']} | "
                f"{test['pooled']:.3g} | {ratios[-1]:.2f} | {'yes' if all(within) else 'no'} | "
                f"{test['coverage']['95%']:.0%} |"
            )
    near = sum(0.7 <= ratio <= 1.4 for ratio in ratios)
    lines += ["", f"Between 0.7 and 1.4 of the error: {near} of {len(ratios)}. "
              f"Errors within the interval: {sum(inside)} of {len(inside)} outputs."]  # fmt: skip
    return "\n".join(lines)


def main(records: list[str]) -> None:
    for name in records:
        for fifth in FIFTHS:
            case = rehearsal(suite.load(name), fifth)
            found = run_seed(name, case, {}, effort="standard", seed=0)
            put(found | {"kind": "rehearsal", "fifth": fifth}, FOLDER / f"{name}-{fifth}.json")
            print(name, fifth, found["family"], found["seconds"], "s", flush=True)
    if not records:
        print(table())


if __name__ == "__main__":
    main(sys.argv[1:])
