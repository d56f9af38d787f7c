"""The five real records of the paper: found on disk or downloaded once, checked, and split.

They are looked for in the folder named by ``OCCAMID_DATA``, then in the user's cache, then in the
repository of the paper's authors.  A file whose SHA-256 differs is never used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pooch
import scipy.io

from occamid.data.record import Record
from occamid.errors import DataError, FileError

Split = Literal["paper", "official"]
SOURCE = (
    "https://raw.githubusercontent.com/hongpengzhou/Deep-Bayesian-System-Identification/"
    "3e89338ab5c4efa1ce84a16dacfac91435971936/"
)
VARIABLE = "OCCAMID_DATA"
Signals = dict[str, np.ndarray]


class Data(NamedTuple):
    """Estimation and test records, and how many outputs a simulation of the tests may know."""

    estimation: tuple[Record, ...]
    test: tuple[Record, ...]
    n_init: int | None  # None: the largest lag


@dataclass(frozen=True)
class Benchmark:
    """One real process: where its file is, what it is, and how it is cut into records."""

    name: str
    file: str
    remote: str
    sha256: str
    sampling_time: float
    about: str
    cut: Callable[[Benchmark, Signals, Split], Data]

    def record(self, u: np.ndarray, y: np.ndarray, part: str) -> Record:
        """A record that carries this benchmark's name and sampling time."""
        return Record(u=u, y=y, sampling_time=self.sampling_time, name=f"{self.name} {part}")


def load(name: str, split: Split = "paper") -> Data:
    """The records of a benchmark.

    ``paper`` splits as the paper does; ``official`` is the split and initial window of the
    nonlinear benchmark site for Cascaded Tanks and Coupled Drives, and the paper's for the rest.
    """
    benchmark = get(name)
    found = scipy.io.loadmat(path(name))
    signals = {k: np.ravel(v) for k, v in found.items() if not k.startswith("__")}
    return benchmark.cut(benchmark, signals, split)


def same_estimation(one: Data, other: Data) -> bool:
    """Whether two splits estimate on the same samples, so that one training serves both."""
    return len(one.estimation) == len(other.estimation) and all(
        np.array_equal(a.u, b.u) and np.array_equal(a.y, b.y)
        for a, b in zip(one.estimation, other.estimation, strict=True)
    )


def get(name: str) -> Benchmark:
    """The registry's entry of this name."""
    if name not in BENCHMARKS:
        raise DataError(f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}.")
    return BENCHMARKS[name]


def cache_folder() -> Path:
    """Where downloaded records are kept."""
    return Path(pooch.os_cache("occamid")) / "data"


def find(name: str) -> Path | None:
    """The checked file of a benchmark if it is on this machine."""
    benchmark = get(name)
    folder = os.environ.get(VARIABLE)
    for place in ([Path(folder)] if folder else []) + [cache_folder()]:
        found = place / benchmark.file
        if found.is_file():
            _check(found, benchmark)
            return found
    return None


def path(name: str, source: str = SOURCE) -> Path:
    """The checked file of a benchmark; downloads it where it is nowhere to be found."""
    return find(name) or fetch(name, source)


def fetch(name: str, source: str = SOURCE) -> Path:
    """Download the file of a benchmark into the cache; what fails the checksum is not kept."""
    benchmark = get(name)
    try:
        return Path(
            pooch.retrieve(
                source + benchmark.remote,
                known_hash=f"sha256:{benchmark.sha256}",
                fname=benchmark.file,
                path=cache_folder(),
                progressbar=False,
            )
        )
    except ValueError:
        raise FileError(
            f"what came back for {name} is not the file it should be (an error page, or cut "
            f"short); nothing was kept. Try again, or put {benchmark.file} into a folder and name "
            f"it in {VARIABLE}."
        ) from None
    except Exception as error:
        if not isinstance(error, OSError):
            raise
        raise FileError(
            f"cannot download {name}: {error}. Put {benchmark.file} into a folder and name it in "
            f"{VARIABLE}."
        ) from None


def _check(found: Path, benchmark: Benchmark) -> None:
    if sha256(found.read_bytes()).hexdigest() != benchmark.sha256:
        raise FileError(
            f"{found} is not the {benchmark.name} record it should be (its SHA-256 differs); "
            "remove it and fetch it again."
        )


def _pair(u: str, y: str, u_test: str, y_test: str) -> Callable[[Benchmark, Signals, Split], Data]:
    """A cut for files that hold estimation and test signals apart."""

    def cut(benchmark: Benchmark, signals: Signals, split: Split) -> Data:
        official = split == "official" and benchmark.name == "cascaded-tanks"
        return Data(
            (benchmark.record(signals[u], signals[y], "estimation"),),
            (benchmark.record(signals[u_test], signals[y_test], "test"),),
            50 if official else None,
        )

    return cut


def _heat_exchanger(benchmark: Benchmark, signals: Signals, split: Split) -> Data:
    whole = benchmark.record(signals["ct"], signals["pt"], "whole")
    u, y = whole.u, whole.y
    return Data(
        (benchmark.record(u[:3000], y[:3000], "estimation"),),
        (benchmark.record(u[3000:], y[3000:], "test"),),
        None,
    )


def _coupled_drives(benchmark: Benchmark, signals: Signals, split: Split) -> Data:
    """Two drives; the paper estimates on 300 samples of each, the official split on 400."""
    at = 300 if split == "paper" else 400
    pairs = [(k, signals[f"u1{k}"], signals[f"z1{k}"]) for k in (1, 2)]
    return Data(
        tuple(benchmark.record(u[:at], y[:at], f"drive {k} estimation") for k, u, y in pairs),
        tuple(benchmark.record(u[at:], y[at:], f"drive {k} test") for k, u, y in pairs),
        10 if split == "official" else None,
    )


BENCHMARKS: dict[str, Benchmark] = {
    b.name: b
    for b in (
        Benchmark(
            "hairdryer",
            "hairdryer.mat",
            "DRY/DRY_Data/dry.mat",
            "8bfb6ba3a9d09ec98291584e46a2607f82108e0b343280b4821b238ee0abdee0",
            0.08,
            "PT326 process trainer: heater voltage to air temperature (MATLAB dryer2)",
            _pair("ue", "ye", "uv", "yv"),
        ),
        Benchmark(
            "heat-exchanger",
            "heat_exchanger.mat",
            "HEX/HEX_Data/hex.mat",
            "492976eb200f3946b4d896225e67d753755617e8d98c3fe7cfd1e470e038d71f",
            0.1,
            "coolant to product temperature (MATLAB iddemo_heatexchanger_data)",
            _heat_exchanger,
        ),
        Benchmark(
            "glass-tube",
            "glass_tube.mat",
            "GT/GT_Data/gt_ds.mat",
            "a97f32fbd0d95fe75fdf449f9553209bc0536ee7e8f5bd277c1512253695629e",
            4.0,
            "drawing speed to thickness, decimated by 4 (MATLAB thispe25)",
            _pair("udse", "ydse", "udsv", "ydsv"),
        ),
        Benchmark(
            "cascaded-tanks",
            "cascaded_tanks.mat",
            "CT/CT_Data/dataBenchmark.mat",
            "cb2f88d4388be4d3f2a24c6402fba804976aac5f2e1f26cda59ea0a38d016eab",
            4.0,
            "pump voltage to lower level (Schoukens, Mattsson, Wigren, Noël 2016)",
            _pair("uEst", "yEst", "uVal", "yVal"),
        ),
        Benchmark(
            "coupled-drives",
            "coupled_drives.mat",
            "CED/CED_Data/DATAUNIF.MAT",
            "102c8d8012d6e850d50c13227b8c2280fe69f8bc4a845177f8bc3d761d152c89",
            0.02,
            "motor voltage to pulley speed, two drives (Wigren, Schoukens 2017)",
            _coupled_drives,
        ),
    )
}
