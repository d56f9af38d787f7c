"""What peers of other people's reach on the records of the suite, and where they fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from occamid_benchmarks.peers import NAMES
from occamid_benchmarks.suite.records import names
from occamid_benchmarks.tables.markdown import markdown

Json = dict[str, Any]
EXPLAINED = (
    "Measured by `make peers` in an environment of their own, on one core each; a peer is told the "
    "estimation data and, of a test, its inputs and first outputs. RMSE of the free run after "
    "those, in the unit of the suite; where there are several outputs, of all together in standard "
    "deviations of the estimation data (σ). Lags, orders, terms and when to stop are chosen on the "
    "last quarter of the estimation data. SysIdentPy (`frols-1` to `frols-3`, by degree) has a "
    "model for each output and takes several records end to end. A dash: not measured."
)


def section(results: Sequence[Json]) -> list[str]:
    """Heading, text, errors, failures and how they were made; nothing without results."""
    if not results:
        return []
    known = {(r["record"], r["peer"]): r for r in results}
    ordered = [known[key] for key in ((n, p) for n in names() for p in NAMES) if key in known]
    head = ("record", "known", *NAMES)
    return [
        "## Peers in an environment of their own",
        EXPLAINED,
        markdown(head, _rows(known)),
        *_list("Failures", [_failure(r) for r in ordered if _failed(r)]),
        *_list(
            "Long records", sorted({f"{r['record']}: {r['note']}" for r in ordered if r["note"]})
        ),
        "Seconds of one core; what was chosen stands in the files:",
        markdown(("record", *NAMES), _costs(known)),
        _made(ordered),
    ]


def _rows(known: dict[tuple[str, str], Json]) -> list[tuple[str, ...]]:
    """One for each test, with the smallest error in bold."""
    rows = []
    for name in names():
        own = {p: known[name, p]["tests"] for p in NAMES if (name, p) in known}
        for k, test in enumerate(next(iter(own.values()), [])):
            unit = next(known[name, p]["unit"] for p in own)
            errors = {p: tests[k]["pooled"] for p, tests in own.items()}
            usable = [e for e in errors.values() if e is not None]
            cells = [_cell(own[p][k], usable) if p in own else "–" for p in NAMES]
            title = f"{test['name']} [{unit}]" if unit else test["name"]
            rows.append((title, str(test["n_init"]), *cells))
    return rows


def _cell(test: Json, usable: Sequence[float]) -> str:
    if test["pooled"] is None:
        return "diverged" if test["failure"] == "diverged" else "failed"
    shown = f"{test['pooled']:.4g}"
    return f"**{shown}**" if test["pooled"] == min(usable) else shown


def _failed(result: Json) -> bool:
    return any(t["failure"] for t in result["tests"])


def _failure(result: Json) -> str:
    reasons = sorted({t["failure"] for t in result["tests"] if t["failure"]})
    return f"{result['record']}, {result['peer']}: {'; '.join(reasons)}"


def _costs(known: dict[tuple[str, str], Json]) -> list[tuple[str, ...]]:
    measured = [n for n in names() if any((n, p) in known for p in NAMES)]
    return [(n, *(_cost(known.get((n, p))) for p in NAMES)) for n in measured]


def _cost(result: Json | None) -> str:
    return "–" if result is None else f"{result['seconds']:.0f}"


def _list(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title}:\n\n" + "\n".join(f"- {line}" for line in lines)] if lines else []


def _made(results: Sequence[Json]) -> str:
    """Versions, machines, seeds and the time they were given."""
    versions = sorted({f"{n} {v}" for r in results for n, v in r["versions"].items()})
    machines = sorted({r["machine"] for r in results})
    given = sorted({(r["asked_to_stop_after_s"], r["limit_s"], r["seed"]) for r in results})
    runs = "; ".join(
        f"no new fit after {stop} s, ended after {limit} s, seed {seed}"
        for stop, limit, seed in given
    )
    return f"{', '.join(versions)}; {'; '.join(machines)}; {runs}."
