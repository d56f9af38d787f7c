"""The work of ``occamid inspect`` and ``report``."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from rich.table import Table
from rich.text import Text

from occamid.bands.combine import load
from occamid.bands.ensemble import Ensemble
from occamid.bands.linear import linearise
from occamid.bands.modelfile import read_about
from occamid.bands.posterior import Posterior
from occamid.bands.transfer import Transfer, is_linear, transfer
from occamid.cli.shared import console, neutral, say
from occamid.errors import DataError, FileError
from occamid.files import manifest
from occamid.files.atomic import check_new_file, replace_file, same_file
from occamid.files.folder import rewrite
from occamid.files.plain import plain
from occamid.identification.job import job_of
from occamid.networks import Observer
from occamid.reporting import runs
from occamid.reporting.page import render
from occamid.reporting.structure import size


def inspect(run: Path, as_json: bool) -> None:
    """What a model is made of and what it does."""
    ensemble = load(run)
    about = read_about(run)
    best = max(ensemble.posteriors, key=lambda p: p.log_evidence)
    if isinstance(best.model.network, Observer):  # the first is of the smallest order that will do
        best = ensemble.posteriors[0]
    linear = transfer(best) if is_linear(best.model) else None
    if as_json:
        print(json.dumps(plain(_content(ensemble, best, linear) | about)))
        return
    say(_size(ensemble))
    if ensemble.beside:
        own = 1 - sum(other.share for other in ensemble.beside)
        say(f"it leads a stack with {own:.0%} of every run; what follows is about it alone")
    if isinstance(best.model.network, Observer):
        _show_states(best, ensemble)
    elif linear is None:
        _show_regressors(best)
    else:
        _show_linear(best, linear)
    for part, values in about.items():
        say(f"{part}: {json.dumps(values)}")


def _content(ensemble: Ensemble, best: Posterior, linear: Transfer | None) -> dict[str, Any]:
    """Everything, for other programs."""
    found = {
        "members": len(ensemble.weights),
        **size(ensemble),
        "regressors": best.regressor_evidence(),
        "weights": [row._asdict() for row in best.table()],
    }
    if linear is None:
        return found
    terms = best.model.terms
    each = {
        output: {
            name: {"coefficient": float(c), "standard_error": float(e)}
            for name, c, e in zip(terms.names, values, errors, strict=True)
        }
        for output, values, errors in zip(
            terms.output_names, linear.coefficients, linear.errors, strict=True
        )
    }
    return found | {
        "linear": {
            "coefficients": each,
            "offset": linear.offset.tolist(),
            "poles": [[float(p.real), float(p.imag)] for p in linear.poles],
            "gain": linear.gain.tolist(),
            "gain_standard_error": linear.gain_errors.tolist(),
            "first_clear_lag": [[None if d < 0 else d for d in row] for row in linear.delays],
        }
    }


def _size(ensemble: Ensemble) -> str:
    """The sentence about parameters, the same numbers as everywhere."""
    count = len(ensemble.weights)
    said = f"{ensemble.parameters} parameters"
    if ensemble.candidates:
        said += f" of {ensemble.candidates} candidates, {ensemble.sparsity:.1%} pruned"
    if count == 1:
        return f"one model with {said}"
    return f"{count} members, the median one with {said} ({ensemble.parameters_in_all} in all)"


def _show_states(best: Posterior, ensemble: Ensemble) -> None:
    """States and units of the first member, and how it moves around its mean inputs."""
    states, units = best.model.neurons
    say(f"the first member has {states} states and {units} units")
    terms, step = best.model.terms, best.model.sampling_time
    for channel, lag in terms.inputs:
        if lag:
            name = terms.input_names[channel]
            say(f"{name} acts on them after {lag} samples ({lag * step:.4g} s)")
    orders = sorted({p.model.neurons[0] for p in ensemble.posteriors})
    if len(orders) > 1:
        say(f"others have {orders[0]} to {orders[-1]} states; the median of all is the model")
    try:
        found = linearise(best.model)
    except DataError as error:
        say(f"around the mean inputs: {error}")
        return
    table = Table(title="poles around the mean inputs, the slowest first", title_justify="left")
    for heading in ("pole", "size", "time constant in s"):
        table.add_column(heading, no_wrap=True)
    for pole, seconds in zip(found.poles, found.time_constants, strict=True):
        table.add_row(f"{pole:.5g}" if pole.imag else f"{pole.real:.5g}", f"{abs(pole):.5g}",
                      f"{seconds:.4g}")  # fmt: skip
    console.print(table)


def _show_regressors(best: Posterior) -> None:
    rows = best.table()
    table = Table(title="regressors of the member with most evidence", title_justify="left")
    for heading in ("regressor", "log evidence", "weights ± standard error"):
        table.add_column(heading, no_wrap=heading != "weights ± standard error")
    for name, value in best.regressor_evidence().items():
        own = [r for r in rows if r.regressor == name]
        spelled = ", ".join(f"{r.value:.3g} ± {r.standard_error:.2g}" for r in own)
        table.add_row(Text(neutral(name)), f"{value:.1f}", spelled)  # u[t-3] is no markup
    console.print(table)


def _show_linear(best: Posterior, found: Transfer) -> None:
    """The difference equation of each output, then poles, gains and delays."""
    terms, step = best.model.terms, best.model.sampling_time
    for k, output in enumerate(terms.output_names):
        title = Text(neutral(f"{output}[t] = {found.offset[k]:.4g} + the sum of"))
        table = Table(title=title, title_justify="left")
        for heading in ("regressor", "coefficient", "standard error"):
            table.add_column(heading, no_wrap=True)
        for name, c, e in zip(terms.names, found.coefficients[k], found.errors[k], strict=True):
            table.add_row(Text(neutral(name)), f"{c:.5g}", f"{e:.2g}")
        console.print(table)
    say(f"poles: {', '.join(map(_pole, found.poles)) or 'none'}")
    for k, output in enumerate(terms.output_names):
        for j, name in enumerate(terms.input_names):
            lag = found.delays[k][j]
            first = f"first clear coefficient after {lag} samples ({lag * step:.4g} s)"
            say(
                f"static gain of {output} over {name}: {found.gain[k, j]:.5g} ± "
                f"{found.gain_errors[k, j]:.2g}; {first if lag >= 0 else 'no clear coefficient'}"
            )


def _pole(pole: complex) -> str:
    sign = "+" if pole.imag >= 0 else "-"
    return f"{pole.real:.4f}" + (f" {sign} {abs(pole.imag):.4f}i" if pole.imag else "")


def report(run: Path, out: Path | None, force: bool, as_json: bool) -> None:
    """Write the report of a run again."""
    content = runs.read_json(run, runs.CONTENT)
    target = out or run / runs.PAGE
    again = target.name == runs.PAGE and same_file(target.parent, run)
    if not again:
        read = [manifest.current(run, runs.CONTENT)]
        with suppress(FileError):  # the page needs no model
            job = job_of(run)
            read += map(Path, (*job.files, *job.test))
        check_new_file(target, overwrite=force, inputs=read)
    try:
        page = render(content)
    except (ArithmeticError, AttributeError, LookupError, TemplateError, TypeError, ValueError):
        raise FileError(f"{run / runs.CONTENT} is damaged; identify again.") from None
    if again:
        rewrite(run, runs.PAGE, page.encode(), overwrite=force)
    else:
        replace_file(target, page.encode(), overwrite=force)
    if as_json:
        print(json.dumps({"out": str(target)}))
    else:
        say(f"written to {target}")
