"""The report of a fit, from Python: one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from occamid.assessment.check.records import check
from occamid.data.findings import Finding
from occamid.data.record import Record, as_records
from occamid.files.atomic import replace_file
from occamid.identification.identify import Fit
from occamid.reporting.content import Shown, content, show
from occamid.reporting.page import render


def report(
    fit: Fit,
    test: Record | Iterable[Record] = (),
    path: str | Path = "report.html",
    *,
    n_init: int | None = None,
) -> None:
    """Write the report of a fit; test records are only used to judge it.

    Args:
        fit: what :func:`occamid.identify` returned.
        test: one or more records the model has not seen; without any it is judged on its own.
        path: the HTML file to write.
        n_init: measured outputs at the start of each free run; by default the model's window.
    """
    given = test if hasattr(test, "u") else tuple(test)
    records = as_records(given) if given else ()
    seen, unseen = (show(fit.model, part, n_init) for part in (fit.records, records))
    page = fit_content(fit, seen, unseen, fit.records[0].name)
    replace_file(Path(path), render(page).encode())


def fit_content(
    fit: Fit,
    seen: Sequence[Shown],
    unseen: Sequence[Shown],
    title: str,
    findings: Sequence[Finding] | None = None,
) -> dict[str, Any]:
    """What the page of a fit shows; findings about the data stand at its head."""
    if findings is None:
        findings = check(fit.records, [run.record for run in unseen])
    notes = {
        "title": title,
        "findings": [finding.as_dict() for finding in findings],
        "data used": fit.coverage_of_data,
        "family": f"{fit.family.name}: {fit.family.about}",
        "effort": fit.options.effort,
        "shares of every run": {name: round(share, 3) for name, share in fit.shares.items()},
        "chosen because": fit.grounds,
        "expected free-run RMSE (held-back data)": ", ".join(
            f"{v:.4g} ({low:.4g} to {high:.4g})"
            for v, (low, high) in zip(fit.expected_rmse, fit.expected_interval, strict=True)
        ),
    }
    return content(fit.model, fit.batch, seen, unseen, notes)
