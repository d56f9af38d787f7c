"""The memory of a search: a study of optuna, in this process, in a journal file or a database.

Optuna proposes and remembers; it never sees the data.  A study is named after the data and the
options, so that one file or database holds many, and those of other data never mix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamid.errors import FileError, SettingsError
from occamid.identification.search.trials import Tried

if TYPE_CHECKING:
    import optuna

MISSING = 'a search needs optuna; install it with pip install "occamid[search]".'
STATES = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
STARTUP = 10  # trials at random before the model of optuna's sampler
HEARD = "heard"  # the attribute of a trial with what is known of it
UNPRUNED = 5  # trials that are heard in all folds before others are compared with them


def require() -> None:
    """Refuse where optuna is not installed."""
    try:
        there = find_spec("optuna") is not None
    except ValueError:  # marked as missing
        there = False
    if not there:
        raise SettingsError(MISSING)


def name_of(*parts: Any) -> str:
    """A study's name: the same for the same data, space and options alone."""
    digest = sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
    return f"occamid-{digest.hexdigest()[:16]}"


@contextmanager
def opened(place: str | Path | None, name: str) -> Iterator[optuna.Study]:
    """The study of this name, new or as it was left; optuna keeps quiet meanwhile."""
    require()
    import optuna

    told = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        pruner = optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED)
        storage = _storage(place)
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, load_if_exists=True, pruner=pruner
            )
        except Exception as error:  # whatever a database's driver raises
            raise _unusable(place, error) from None
        yield study
    finally:
        optuna.logging.set_verbosity(told)


def begin(study: optuna.Study, seed: int) -> optuna.Trial:
    """The next trial; what it proposes depends on the seed, its number and the trials before it.

    So several processes with one seed do not try the same, and a resumed search goes on as if it
    had not been stopped.
    """
    import optuna

    trial = study.ask()
    own = int.from_bytes(sha256(f"{seed} {trial.number}".encode()).digest()[:4], "big")
    study.sampler = optuna.samplers.TPESampler(
        n_startup_trials=STARTUP, seed=own, multivariate=False
    )
    return trial


def tried(study: optuna.Study) -> tuple[Tried, ...]:
    """What the study knows, without trials that are still running."""
    found = []
    for trial in study.get_trials(deepcopy=False):
        kept = trial.user_attrs.get(HEARD)
        if trial.state.name in STATES and kept:
            values = kept | {
                "score": float("inf") if kept["score"] is None else kept["score"],
                "rmse": tuple(kept["rmse"]),
                "pieces": tuple(map(tuple, kept["pieces"])),
            }
            found.append(Tried(number=trial.number, state=STATES[trial.state.name], **values))
    return tuple(found)


def _storage(place: str | Path | None) -> Any:
    """Where a study is kept: nowhere, in a database, or in a journal file."""
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    if place is None or "://" in str(place):
        return place if place is None else _database(str(place))
    path = Path(place)
    check_journal(path)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except Exception as error:  # what is in the file is read here
        raise _unusable(path, error) from None


def _database(address: str) -> Any:
    import optuna

    try:
        return optuna.storages.RDBStorage(address)
    except Exception as error:
        raise _unusable(address, error) from None


def _unusable(place: str | Path | None, error: Exception) -> SettingsError:
    """One line of whatever went wrong; an address may hold a password and is not repeated."""
    what = "the database" if "://" in str(place) else str(place)
    said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0].rstrip(".")
    return SettingsError(f"`study`: {what} cannot be used ({said}); name another file or address.")


def check_journal(path: Path) -> None:
    """Refuse a file that is no journal: lines would be added to it."""
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it with `study`.")
    if not path.absolute().parent.is_dir():
        raise FileError(f"{path}: there is no folder {path.parent}; make it, or name another.")
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            first = file.readline(10_000)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}.") from None
    if not path.is_file() or (first and not _is_entry(first)):
        raise FileError(f"{path} is no journal of a study; name another file with `study`.")


def is_ours(path: Path) -> bool:
    """Whether a file is a journal that a search began."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(10_000)
    return _is_entry(first) and b'"occamid-' in first


def ended_in(path: Path) -> int:
    """How many trials a journal holds that have ended."""
    import optuna

    storage = _storage(path)
    names = optuna.get_all_study_names(storage)
    return sum(len(tried(optuna.load_study(study_name=n, storage=storage))) for n in names)


def _is_entry(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "op_code" in found
