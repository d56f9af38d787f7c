"""``occamid benchmark``: the paper's experiments, the baselines and the tables made of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.table import Table as Grid

from occamid.cli.shared import console, say, stage_bar
from occamid.errors import check_choice
from occamid.files.atomic import replace_file
from occamid_benchmarks import RESULTS, automatic, experiments, reproduce
from occamid_benchmarks.baselines import measure
from occamid_benchmarks.commands.peers import peers
from occamid_benchmarks.commands.profile import profile
from occamid_benchmarks.commands.progress import training_bar
from occamid_benchmarks.commands.speed import speed
from occamid_benchmarks.commands.suite import suite
from occamid_benchmarks.commands.training import training
from occamid_benchmarks.registry import BENCHMARKS
from occamid_benchmarks.tables.document import document

app = typer.Typer(
    help="Reproduce the paper's ten experiments and compare with baselines.", no_args_is_help=True
)
Out = Annotated[
    Path | None, typer.Option(help=f"Folder for the results; default {RESULTS}/PROTOCOL.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="Fixes the initial weights.")]
app.command()(suite)
app.command()(peers)
app.command()(profile)
app.command()(speed)
app.command()(training)


@app.command("list")
def show() -> None:
    """The ten experiments with the figures of the paper's Table 1."""
    grid = Grid(box=None, title="Table 1 of the paper", title_justify="left")
    for heading in ("experiment", "RMSE", "best", "sparsity"):
        grid.add_column(heading, no_wrap=True)
    for name, e in experiments.experiments().items():
        grid.add_row(
            name,
            " / ".join(f"{q.mean:g} ± {q.std:g}" for q in e.paper_rmse),
            " / ".join(f"{q.min:g}" for q in e.paper_rmse),
            f"{e.paper_sparsity:.1%}",
        )
    console.print(grid)
    say(experiments.WARNING)


@app.command()
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments, see list; all ten if none is named.")
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(help="paper: choose on validation data; honest: never look at it; or both."),
    ] = "paper",
    restarts: Annotated[
        int | None, typer.Option(min=1, help="Random initialisations; default 20.")
    ] = None,
    seed: Seed = None,
    out: Out = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run again what is already finished.")
    ] = False,
) -> None:
    """Run experiments and write NAME.json with figures; finished ones are not run again.

    Example: [bold]occamid benchmark run hairdryer-mlp glass-tube-mlp --protocol paper[/bold]
    """
    check_choice("protocol", protocol, ("paper", "honest", "both"))
    protocols = [p for p in get_args(experiments.Protocol) if protocol in (p, "both")]
    folders = {p: out or RESULTS / p for p in protocols}
    if out and protocol == "both":
        folders = {p: out / p for p in protocols}
    found = [experiments.experiment(name) for name in names or experiments.experiments()]
    if "paper" in protocols:
        say(experiments.WARNING)
    for experiment in found:
        changes = {"restarts": restarts, "seed": seed}
        settings = experiment.settings.replace(
            **{k: v for k, v in changes.items() if v is not None}
        )
        left = []
        for one, folder in folders.items():
            if not force and reproduce.finished(experiment, one, settings, folder):
                say(f"{experiment.name}: finished before, in {folder}; --force runs it again")
            else:
                left.append(one)
        if not left:
            continue
        say(f"{experiment.name}: {experiment.about}")
        with training_bar() as progress:
            outcomes = list(reproduce.runs(experiment, left, settings, progress))
        for outcome in outcomes:
            with console.status("posterior and figures"):
                reproduce.write(outcome, folders[outcome.protocol])
            _tell(outcome)


@app.command()
def baselines(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(BENCHMARKS)}; all if none is named.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Such as {measure.PLAIN[-1]}; may be given often. All if not given."),
    ] = None,
    restarts: Annotated[int, typer.Option(min=1, help="For the networks among them.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the initial weights.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS / "baselines",
) -> None:
    """Linear models, process models, Gaussian processes and plain networks on the real records.

    Both protocols; baselines-RECORD.json grows row by row, and finished rows are kept: of a
    network those with as many restarts and this seed.
    """
    for record in names or BENCHMARKS:
        check_choice("record", record, BENCHMARKS)
        for name in only or ():
            check_choice("baseline", name, tuple(measure.names(record)))
    say(experiments.WARNING)
    for record in names or BENCHMARKS:
        tell = partial(_tell_baseline, record)
        with console.status(f"baselines on {record}"):
            measure.measure_all(record, out, restarts, seed, tell, only)


def _tell_baseline(record: str, row: dict[str, Any]) -> None:
    errors = {
        p: " / ".join(f"{v:.4f}" for v in row[p]["rmse"].values() if v is not None)
        for p in ("paper", "honest")
    }
    say(
        f"{record}, {row['name']}: {errors['paper']} chosen on validation data "
        f"({row['paper']['model']}), {errors['honest']} honest ({row['honest']['model']}), "
        f"{row['seconds']:.0f} s"
    )


@app.command()
def honest(
    names: Annotated[
        list[str] | None, typer.Argument(help="Real records and twins; all if none is named.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0.")] = 5,
    effort: Annotated[str, typer.Option(help="quick, standard or thorough.")] = "standard",
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS / "honest-auto",
) -> None:
    """The automatic mode on records it has no settings for; test data are only used to judge it.

    Official splits and initial windows.  Writes honest-RECORD.json.
    """
    chosen = names or list(automatic.names())
    for name in chosen:
        check_choice("record", name, automatic.names())
    for name in chosen:
        runs = []
        for seed in range(seeds):
            with stage_bar() as progress:
                runs.append(automatic.run_seed(name, seed, effort, progress))
            found = automatic.write(name, runs, effort, out)
        errors = ", ".join(
            f"{k} {v['mean']:.4f} ± {v['std']:.4f}" for k, v in found["rmse"].items()
        )
        say(
            f"{name}: {errors}; 95 % band covers {found['coverage95']:.1%}; "
            f"{', '.join(sorted(set(found['families'])))}; {found['seconds']:.0f} s each"
        )


@app.command("table")
def write_table(
    results: Annotated[Path, typer.Option(help="Folder with finished runs.")] = RESULTS,
    out: Annotated[Path, typer.Option(help="The document to write.")] = Path("docs/results.md"),
) -> None:
    """Write every table of the finished runs as one Markdown document."""
    text = document(results)
    replace_file(out, text.encode())
    say(f"written to {out}: {len(text.splitlines())} lines")


def _tell(outcome: reproduce.Outcome) -> None:
    """Errors beside the paper's, and both ends of the trade-off between error and size."""
    report = reproduce.report(outcome)
    for (record, ours), quoted in zip(
        report["rmse"].items(), outcome.experiment.paper_rmse, strict=True
    ):
        say(
            f"  {record}: RMSE {ours['mean']:.4f} ± {ours['std']:.4f}, best {ours['min']:.4f} "
            f"(paper {quoted.mean:g} ± {quoted.std:g}, best {quoted.min:g})"
        )
    if outcome.several:
        say(f"  λ {report['lam']:g}, of {', '.join(f'{v:g}' for v in outcome.settings.lam)}")
    for what in ("most_accurate", "chosen"):
        if at := report[what]:
            errors = " / ".join(f"{v:.4f}" for v in at["rmse"])
            say(
                f"  {what.replace('_', ' ')}: RMSE {errors}, sparsity {at['sparsity']:.1%}, "
                f"{at['regressors']} regressors, {at['neurons']} neurons, cycle {at['cycle']}"
            )
    seconds = report["seconds"]
    say(f"  {seconds['compile']:.1f} s compiling, {seconds['run']:.1f} s training")
