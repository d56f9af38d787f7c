"""Everything the report shows as plain numbers: dictionaries, lists and text, ready for JSON."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from occamid.assessment.check.delay import Delay, delays
from occamid.assessment.check.dynamics import EFFECT
from occamid.assessment.residuals import Outcome, ResidualAnalysis, analyse
from occamid.assessment.run import Run
from occamid.assessment.scores import SHARES
from occamid.bands.ensemble import Ensemble
from occamid.bands.units import DivergedWarning
from occamid.data.record import Record
from occamid.files.plain import plain
from occamid.networks import Observer
from occamid.reporting import structure
from occamid.reporting.dynamics import dynamics
from occamid.reporting.series import decimate, number, rounded, share_of_points
from occamid.reporting.verdict import AHEAD, drifts, verdict
from occamid.training.batch import Batch
from occamid.training.provenance import provenance
from occamid.training.settings import Settings

MOST_RUNS = 6  # records that are plotted; all are counted


class Shown(NamedTuple):
    """A record with its one-step predictions and its free run, each made once."""

    record: Record
    one_step: Run
    free: Run


def show(
    model: Ensemble, records: Sequence[Record], n_init: int | None = None
) -> tuple[Shown, ...]:
    """Everything the report says about these records rests on.

    Divergence is told in the verdict, not as a warning.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)
        return tuple(Shown(r, model.predict(r), model.simulate(r, n_init)) for r in records)


def content(
    model: Ensemble,
    batch: Batch | None,
    seen: Sequence[Shown],
    unseen: Sequence[Shown] = (),
    notes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the page needs.

    Args:
        model: the model with bands.
        batch: the training it is from, if it is from one.
        seen: runs on the records it was identified on.
        unseen: runs on records it has not seen; without any, the page judges on ``seen`` and says
            so.
        notes: ``title``, ``findings`` about the data, and anything else for the table of
            provenance.
    """
    shown = unseen or seen
    role = "test" if unseen else "estimation"
    analyses = {
        name: _analyse(model, runs)
        for name, runs in (("estimation", seen), ("test", unseen))
        if runs
    }
    calibration = _calibration(shown, model)
    rest = dict(notes or {})
    facts = _facts(model, batch, analyses[role], calibration)
    _add_delays(facts, [run.record for run in seen])
    rows = sum(len(run.record) - run.free.n_init for run in shown)
    facts |= {"data": role, "n_init": shown[0].free.n_init, "rows": rows}
    facts["diverged"] = max(run.free.diverged for run in shown)
    _add_predictions(facts["outputs"], model, shown, analyses[role])
    return plain(
        {
            "title": str(rest.pop("title", seen[0].record.name)),
            "findings": rest.pop("findings", []),
            "facts": facts,
            "verdict": verdict(facts),
            "records": [_record(run.record, "estimation") for run in seen]
            + [_record(run.record, "test") for run in unseen],
            "data": role,
            "runs": _series(shown[:MOST_RUNS]),
            "runs_left_out": len(shown) - len(shown[:MOST_RUNS]),
            "residuals": {k: _residuals(a, seen[0].record) for k, a in analyses.items()},
            "calibration": calibration,
            "dynamics": dynamics(model, [run.record for run in seen]),
            "settings": _settings(batch.settings) if batch else [],
            "provenance": _provenance(batch, rest),
        }
        | structure.structure(model, batch)
    )


def _analyse(model: Ensemble, runs: Sequence[Shown]) -> ResidualAnalysis:
    """Residuals of all records together, with the effective parameters of an average member."""
    return analyse(
        [run.record for run in runs],
        [run.one_step.mean for run in runs],
        [run.free.mean for run in runs],
        skip=max(model.start, runs[0].free.n_init),
        parameters=float(model.weights @ [p.effective for p in model.posteriors]),
    )


def _facts(
    model: Ensemble,
    batch: Batch | None,
    analysis: ResidualAnalysis,
    calibration: dict[str, Any],
) -> dict[str, Any]:
    """The numbers behind the verdict."""
    r = model.first.terms
    failed = sum(row["failed"] for row in structure.restarts(batch)) if batch else 0
    inputs = []
    for channel, name in enumerate(r.input_names):
        lags = [lag for c, lag in r.inputs if c == channel]
        lag = min(lags) if lags else None
        seconds = None if lag is None else lag * model.sampling_time
        inputs.append({"name": name, "lag": lag, "seconds": seconds})
    outputs = []
    assert analysis.free_run is not None
    for k, name in enumerate(r.output_names):
        passed = [test.passed for test in analysis.independence[k]]
        outputs.append(
            {
                "name": name,
                "fit": number(analysis.free_run.fit[k]),
                "coverage": calibration["outputs"][k]["coverage"][-1],
                "white": analysis.whiteness[k].passed,
                "white_p": analysis.whiteness[k].p_value,
                "depends_on": [n for n, ok in zip(r.input_names, passed, strict=True) if not ok],
            }
        )
    return {
        "kept": len(r),
        "candidates": len(batch.terms if batch else r),
        "together": len(model.regressors),
        "states": list(model.first.neurons) if isinstance(model.network, Observer) else None,
        "inputs": inputs,
        "outputs": outputs,
        "families": 1 + len(model.beside),
        "members": sum(len(m.posteriors) for m in (model, *(b.model for b in model.beside))),
        "parameters": model.parameters_in_all,
        "failed": failed,
        "runs": batch.shape[0] * batch.shape[1] if batch else 0,
        "sampling_time": model.sampling_time,
    }


def _add_delays(facts: dict[str, Any], records: Sequence[Record]) -> None:
    """What the data say about the delay of each input, to the output where it is surest."""
    surest: dict[str, Delay] = {}
    for delay in delays(tuple(records)):
        known = surest.get(delay.input)
        acts = delay.told and delay.effect > EFFECT
        if acts and (known is None or delay.certainty > known.certainty):
            surest[delay.input] = delay
    for channel in facts["inputs"]:
        found = surest.get(channel["name"])
        channel["delay"] = found and {
            "samples": list(found.interval),
            "best": found.best,
            "probability": found.certainty,
            "seconds": [lag * facts["sampling_time"] for lag in found.interval],
        }


def _add_predictions(
    outputs: list[dict[str, Any]],
    model: Ensemble,
    shown: Sequence[Shown],
    analysis: ResidualAnalysis,
) -> None:
    """Fits of predictions from measured outputs, where a free run is poor and one step is not."""
    fits = analysis.one_step.fit
    if not any(drifts(out["fit"], float(fit)) for out, fit in zip(outputs, fits, strict=True)):
        return
    record = shown[0].record
    found = model.predict(record, AHEAD).fit(record)
    for out, fit, one_step in zip(outputs, found, fits, strict=True):
        out["ahead"] = {"steps": AHEAD, "fit": number(fit), "one_step": number(one_step)}


def _record(r: Record, role: str) -> dict[str, Any]:
    return {
        "name": r.name,
        "role": role,
        "rows": len(r),
        "sampling_time": r.sampling_time,
        "seconds": len(r) * r.sampling_time,
        "inputs": list(r.input_names),
        "outputs": list(r.output_names),
    }


def _series(runs: Sequence[Shown]) -> list[dict[str, Any]]:
    """Measurement, free run and band of each record over time, short enough to plot."""
    first = runs[0].record
    limit = share_of_points(len(runs) * (1 + 4 * first.y.shape[1] + first.u.shape[1]))
    found = []
    for run in runs:
        r, mean = run.record, run.free.mean
        low, high = run.free.interval(0.95)
        columns = np.nan_to_num(np.concatenate([r.y, mean, low, high, r.u], axis=1))
        at = decimate(columns, limit)
        fit, error, covered = run.free.fit(r), run.free.rmse(r), run.free.coverage(r)
        outputs = []
        for k, name in enumerate(r.output_names):
            span = float(np.ptp(r.y[:, k])) or None
            lines = (("measured", r.y), ("mean", mean), ("low", low), ("high", high))
            outputs.append(
                {"name": name}
                | {key: rounded(values[at, k], span) for key, values in lines}
                | {"fit": number(fit[k]), "rmse": number(error[k]), "coverage": number(covered[k])}
            )
        found.append(
            {
                "record": r.name,
                "rows": len(r),
                "points": len(at),
                "known": run.free.n_init * r.sampling_time,
                "time": rounded(at * r.sampling_time, len(r) * r.sampling_time * 1e-2),
                "outputs": outputs,
                "inputs": [
                    {"name": n, "values": rounded(r.u[at, j])} for j, n in enumerate(r.input_names)
                ],
            }
        )
    return found


def _residuals(a: ResidualAnalysis, record: Record) -> dict[str, Any]:
    """The analysis of residuals, output by output."""
    outputs = []
    for k, name in enumerate(record.output_names):
        h = a.histograms[k]
        inputs = [
            {
                "name": other,
                "cross": rounded(a.cross[k, j], 1.0),
                "bound": number(a.cross_bound[k, j]),
                "test": _outcome(a.independence[k][j]),
            }
            for j, other in enumerate(record.input_names)
        ]
        free = a.free_run
        outputs.append(
            {
                "name": name,
                "auto": rounded(a.auto[k], 1.0),
                "whiteness": _outcome(a.whiteness[k]),
                "inputs": inputs,
                "histogram": h._asdict()
                | {
                    "edges": h.edges.tolist(),
                    "density": h.density.tolist(),
                    "normality": _outcome(h.normality),
                },
                "one_step": {"rmse": float(a.one_step.rmse[k]), "fit": float(a.one_step.fit[k])},
                "free_run": free and {"rmse": float(free.rmse[k]), "fit": float(free.fit[k])},
            }
        )
    return {
        "level": a.level,
        "samples": a.samples,
        "lags": a.lags.tolist(),
        "cross_lags": a.cross_lags.tolist(),
        "auto_bound": a.auto_bound,
        "outputs": outputs,
        "aic": a.aic,
        "fpe": a.fpe,
        "parameters": a.parameters,
    }


def _outcome(test: Outcome) -> dict[str, Any]:
    return test._asdict()


def _calibration(runs: Sequence[Shown], model: Ensemble) -> dict[str, Any]:
    """Scores of the bands, pooled over the records by their number of samples."""
    rows = np.array([len(run.record) - run.free.n_init for run in runs], dtype=np.float64)
    share = rows / rows.sum()
    scores = [run.free.scores(run.record) for run in runs]
    curves = [run.free.reliability(run.record) for run in runs]
    below = np.tensordot(share, np.stack([curve for _, curve in curves]), axes=1)
    pooled = {
        name: np.tensordot(share, np.stack([getattr(s, name) for s in scores]), axes=1)
        for name in ("crps", "log_density", "width")
    }
    coverage = np.stack([share @ np.stack([s.coverage[p] for s in scores]) for p in SHARES])
    return {
        "levels": curves[0][0].tolist(),
        "shares": list(SHARES),
        "outputs": [
            {
                "name": name,
                "below": below[:, k].tolist(),
                "coverage": coverage[:, k].tolist(),
                "inflation": float(model.inflation[-1, k]),
                "regions": _regions(model, k),
                **{key: number(values[k]) for key, values in pooled.items()},
            }
            for k, name in enumerate(runs[0].record.output_names)
        ],
    }


def _regions(model: Ensemble, output: int) -> dict[str, list[float]] | None:
    """How much wider free runs' bands are at some levels of an output than elsewhere."""
    if model.regions is None:
        return None
    levels, factors = model.regions.levels[:, output], model.regions.factors[-1, :, output]
    return {"levels": levels.tolist(), "factors": factors.tolist()}


def _settings(settings: Settings) -> list[dict[str, Any]]:
    """Every setting with its meaning, and whether it differs from the default."""
    default = Settings().model_dump()
    return [
        {
            "name": name,
            "value": _said(value),
            "meaning": type(settings).model_fields[name].description or "",
            "changed": value != default[name],
        }
        for name, value in settings.model_dump().items()
    ]


def _provenance(batch: Batch | None, notes: Mapping[str, Any]) -> list[dict[str, str]]:
    """Where, when and how long; then whatever the caller adds."""
    rows: dict[str, Any] = dict(provenance())
    if batch:
        rows["residuals fitted"] = batch.count
        rows |= {f"seconds, {k}": round(v, 2) for k, v in batch.seconds.items()}
    rows |= notes
    return [{"name": str(k), "value": _said(v)} for k, v in rows.items()]


def _said(value: Any) -> str:
    """A value as a person would write it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k} = {_said(v)}" for k, v in value.items()) or "–"
    if isinstance(value, (tuple, list)):
        return ", ".join(_said(v) for v in value) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "–" if value is None else str(value)
