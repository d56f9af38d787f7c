"""``occamid identify``: from records to a folder with models, figures and plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from occamid import driver, figures, metrics, modelfile, store
from occamid.calibration import score
from occamid.cli.shared import console, numbers, say, training_bar
from occamid.data import twins
from occamid.ensemble import ensemble_of
from occamid.errors import SettingsError
from occamid.result import Result
from occamid.settings import Settings


def identify(
    example: Annotated[
        str | None,
        typer.Option(help=f"A simulated process: {', '.join(twins.TWINS)}.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/identify"),
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings; options override it.")
    ] = None,
    network: Annotated[str | None, typer.Option(help="mlp, lstm or rnn.")] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Units of the hidden layers: 20 or 10,10.")
    ] = None,
    lags: Annotated[
        int | None, typer.Option(help="Lags of inputs and outputs; default: from the data.")
    ] = None,
    lam: Annotated[str | None, typer.Option(help="λ, one or several: 1e-3 or 1e-3,2e-3.")] = None,
    restarts: Annotated[int | None, typer.Option(help="Random initialisations for each λ.")] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes data and initial weights.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what is in the output folder.")
    ] = False,
) -> None:
    """Identify a simulated process; write models, figures and two plots to a folder.

    All restarts and λ values are trained together.  The ten best, chosen on the estimation data
    alone, make an ensemble with bands; the test record is only used to say how good they are.
    Every setting (activation, bias, delay, structure, …) can stand in the TOML file of --config.

    Try: [bold]occamid identify --example cascaded-tanks-twin --out runs/demo[/bold]
    """
    if example is None:
        raise SettingsError(f"name a process with --example; there are {', '.join(twins.TWINS)}.")
    settings = settings_from(
        config,
        network=network,
        hidden=numbers(hidden, int, "hidden"),
        input_lags=lags,
        output_lags=lags,
        lam=numbers(lam, float, "lam"),
        restarts=restarts,
        seed=seed,
    )
    twin = twins.make(example, settings.seed)
    store.check_writable(out, overwrite=force)
    with training_bar() as progress:
        result = driver.identify(twin.estimation, settings, progress=progress)
    _show(result)
    _finish(result, twin, out)


def settings_from(config: Path | None, **options: Any) -> Settings:
    """The settings of a file, if any, with the options that were given in their place."""
    base = Settings.from_toml(config) if config else Settings()
    return base.replace(**{k: v for k, v in options.items() if v is not None})


def _show(result: Result) -> None:
    """A table of the best models and the surviving regressors by name."""
    table = Table(title="best models on the estimation data", title_justify="left")
    headings = ("λ", "cycle", "one step", "free run", "pruned", "kept", "neurons", "evidence")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for index in result.ranking(8):
        row = result.row(index)
        table.add_row(
            f"{row.lam:g}",
            str(row.cycle),
            " ".join(f"{v:.4f}" for v in row.one_step_rmse),
            " ".join(f"{v:.4f}" for v in row.free_run_rmse),
            f"{row.sparsity:.1%}",
            f"{row.regressors} of {len(result.regressors)}",
            str(row.neurons),
            f"{row.log_evidence:.1f}",
        )
    console.print(table)
    bad = int((result.table["status"] != 0).sum())
    if bad:
        say(f"{bad} of {result.table['status'].size} models diverged, emptied or broke off.")
    names = result.best.regressors
    say(f"keeps {len(names)} of {len(result.regressors)} regressors: {', '.join(names)}")


def _finish(result: Result, twin: twins.Twin, out: Path) -> None:
    """The ensemble with its bands, the honest test, the plots and the files."""
    with console.status("posteriors and bands"):
        ensemble = ensemble_of(result, twin.estimation)
        n_init = result.start
        found = ensemble.simulate_distribution(twin.test, n_init)
    fit = metrics.fit_percent(twin.test.y, found.mean, n_init)
    error = metrics.rmse(twin.test.y, found.mean, n_init)
    covered = score(twin.test.y, found, n_init).coverage[0.95]
    test = {
        "name": twin.test.name,
        "n_init": n_init,
        "rmse": error.tolist(),
        "fit": fit.tolist(),
        "coverage95": covered.tolist(),
    }
    say(
        f"test record, free run of the {len(ensemble.weights)} best after {n_init} samples: RMSE "
        f"{', '.join(f'{v:.4g}' for v in error)}, fit {', '.join(f'{v:.1f} %' for v in fit)}, "
        f"95 % band covers {', '.join(f'{v:.1%}' for v in covered)}"
    )
    with store.new_folder(out) as folder:
        store.write_result(result, folder, {"test": test})
        modelfile.save_ensemble(ensemble, folder / "model.safetensors")
        title = f"{twin.name}: free run on data the model has not seen"
        figures.save(
            figures.free_run_figure(twin.test, found, n_init, title), folder / "free_run.png"
        )
        figures.save(figures.sparsity_figure(result.best), folder / "sparsity.png")
    say(f"written to {out}: {', '.join(sorted(p.name for p in out.iterdir()))}")
