"""suite.md from the JSON files of finished runs, one table for each effort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from occamid.identification.options import Effort
from occamid_benchmarks.suite.measure import AHEAD
from occamid_benchmarks.suite.others import errors_of
from occamid_benchmarks.suite.records import names
from occamid_benchmarks.tables import peers
from occamid_benchmarks.tables.markdown import markdown

Json = dict[str, Any]
PLAIN = ("diagonal posterior", "split conformal")
HEAD = (
    *("record", "seeds", "error", "best peer", "its error", "ratio", "50 %", "80 %", "95 %"),
    *(f"95 %, {AHEAD} steps", "CRPS", *PLAIN, "expected / test", "family", "seconds"),
)
EXPLAINED = (
    "Free-run RMSE after the initial window, mean over the seeds; where there are several outputs, "
    "of all together in standard deviations of the estimation data (σ). Then the best of the peers "
    "and the error over its; what the bands of the free run cover, and the 95 % band of "
    f"predictions {AHEAD} steps ahead; the continuous ranked probability score in the unit of the "
    "error, and that of two plainer bands around the same runs, the paper's diagonal posterior and "
    "a constant one from the same held-back errors (split conformal); the error that was expected, "
    "without a look at the test, over the error; the family, with shares where several stand "
    "beside each other. Peers are ARX and output error with orders by BIC, and subspace "
    "identification, on at most 10,000 rows, and those of `make peers` as far as they are "
    "measured. Best on the test is a choice in the "
    "peers' favour. A dash: diverged, or not to be had."
)


def document(results: Sequence[Json], outside: Sequence[Json] = ()) -> str:
    """The whole document; ``outside`` are results of peers in their own environment."""
    parts = ["# The suite", *sections(results, outside), *peers.section(outside)]
    return "\n\n".join(parts) + "\n"


def sections(results: Sequence[Json], outside: Sequence[Json], level: str = "##") -> list[str]:
    """What the figures are, and a table for each effort; nothing without results."""
    parts = [EXPLAINED] if results else []
    for effort in get_args(Effort):
        own = [r for r in results if r["effort"] == effort]
        if own:
            made = {f"version {r['version']} on {r['machine']}" for r in own}
            shown = markdown(HEAD, rows(own, outside))
            parts += [f"{level} Effort {effort}", shown, "; ".join(sorted(made))]
    return parts


def rows(results: Sequence[Json], outside: Sequence[Json] = ()) -> list[tuple[str, ...]]:
    """One row for each test of each record, records in the order of the suite."""
    found = []
    for name in names():
        own = [r for r in results if r["record"] == name]
        tests = zip(*(r["tests"] for r in own), strict=True)
        found += [_row(own, test, errors_of(outside, name, test[0]["name"])) for test in tests]
    return found


def _row(
    results: Sequence[Json], tests: Sequence[Json], outside: Mapping[str, float | None]
) -> tuple[str, ...]:
    """One test over the seeds."""
    error = mean(t["pooled"] for t in tests)
    peer, peer_error = best_peer(tests, outside)
    unit = results[0]["unit"]
    return (
        tests[0]["name"],
        str(len(tests)),
        f"{_number(error)} {unit}".strip(),
        peer,
        _number(peer_error),
        "–" if error is None or peer_error is None else f"{error / peer_error:.2f}",
        *(_share(mean(t["coverage"][share] for t in tests)) for share in ("50%", "80%", "95%")),
        _share(mean(t[f"coverage_{AHEAD}_steps"] for t in tests)),
        _number(mean(t["crps"] for t in tests)),
        *(_number(mean(t["crps_plain"].get(name) for t in tests)) for name in PLAIN),
        _number(mean(t["expected_over_test"] for t in tests), ".2f"),
        ", ".join(sorted({_families(r) for r in results})),
        _number(mean(r["seconds"] for r in results), ".0f"),
    )


def _families(result: Json) -> str:
    """The family, with what stands beside it."""
    shares = result["shares"].items()
    return " + ".join(n if len(shares) == 1 else f"{n} {share:.0%}" for n, share in shares)


def best_peer(
    tests: Sequence[Json], outside: Mapping[str, float | None]
) -> tuple[str, float | None]:
    """The peer with the smallest error over the seeds; those that diverged are left out."""
    own = {n: mean(t["peers"][n]["pooled"] for t in tests) for n in tests[0]["peers"]}
    errors = {**own, **outside}
    usable = {name: error for name, error in errors.items() if error is not None}
    if not usable:
        return "–", None
    name = min(usable, key=usable.__getitem__)
    return name, usable[name]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean, if every one is there: without a seed that diverged it would flatter."""
    found = list(values)
    known = [v for v in found if v is not None]
    return float(np.mean(known)) if len(known) == len(found) else None


def _number(value: float | None, spec: str = ".4g") -> str:
    return "–" if value is None else f"{value:{spec}}"


def _share(value: float | None) -> str:
    return _number(value, ".1%")
