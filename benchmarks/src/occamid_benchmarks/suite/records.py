"""The records of the suite: ten of their own beside the paper's five, with official splits.

The ten are looked for in ``suite`` inside the folder that ``OCCAMID_DATA`` names; those of the
DaISy data base are in ``suite/daisy``.  A file whose SHA-256 differs is never used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io

from occamid.data.record import Record
from occamid.errors import DataError, FileError
from occamid_benchmarks import registry

Array = np.ndarray
FOLDER = "suite"
DAISY_SHARE = 60  # per cent of the rows to estimate on, where nobody has said how to split
DAISY_KNOWN = 20


class Case(NamedTuple):
    """What may be learned from, what it is judged on, and the unit errors are told in."""

    estimation: tuple[Record, ...]
    test: tuple[Record, ...]
    n_init: int | None  # outputs of a test that are known; None: as many as the model asks for
    factor: float = 1.0  # from the record's unit to the table's
    unit: str = ""


@dataclass(frozen=True)
class Source:
    """One process: its files with their checksums, what it is, and how it is cut."""

    name: str
    files: dict[str, str]  # SHA-256 by path inside the suite's folder
    sampling_time: float
    about: str
    n_init: int
    cut: Callable[[Source, list[Path]], tuple[list[Record], list[Record]]]
    factor: float = 1.0
    unit: str = ""

    def record(self, u: Array, y: Array, part: str = "whole") -> Record:
        """A record that carries this source's name and sampling time."""
        return Record(u=u, y=y, sampling_time=self.sampling_time, name=f"{self.name} {part}")


def names() -> tuple[str, ...]:
    """Every record: the paper's five, then the others."""
    return (*registry.BENCHMARKS, *SOURCES)


def load(name: str) -> Case:
    """The records of a process on its official split.

    Outputs of unlike units cannot be added up: where there are several, the errors of all
    together are in standard deviations of the estimation data, σ.
    """
    if name in registry.BENCHMARKS:
        return Case(*registry.load(name, "official"))
    if name not in SOURCES:
        raise DataError(f"no record is called {name!r}; there are {', '.join(names())}.")
    source = SOURCES[name]
    estimation, test = source.cut(source, [find(name, file) for file in source.files])
    unit = "σ" if estimation[0].y.shape[1] > 1 else source.unit
    return Case(tuple(estimation), tuple(test), source.n_init, source.factor, unit)


def find(name: str, file: str) -> Path:
    """A checked file of the suite, or an error that says where it should be."""
    folder = os.environ.get(registry.VARIABLE)
    if not folder:
        raise FileError(
            f"{name} needs {FOLDER}/{file}; put it into a folder and name that folder in "
            f"{registry.VARIABLE}."
        )
    path = Path(folder) / FOLDER / file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"{name} needs {path}, which cannot be read: {error.strerror}. Put the file there, or "
            f"name the folder that holds {FOLDER}/{file} in {registry.VARIABLE}."
        ) from None
    if sha256(content).hexdigest() != SOURCES[name].files[file]:
        raise FileError(
            f"{path} is not the {name} record it should be (its SHA-256 differs); "
            "replace it by the original."
        )
    return path


def _silverbox(source: Source, paths: list[Path]) -> tuple[list[Record], list[Record]]:
    """A multisine cut at three quarters; an arrow whose end goes beyond its amplitudes."""
    found = scipy.io.loadmat(paths[0])
    u, y = np.ravel(found["V1"]), np.ravel(found["V2"])
    first, stop = 40650, 127400
    middle = first + (stop - first) * 3 // 4
    tests = {
        "multisine": slice(middle, stop),
        "arrow": slice(100, 40575),
        "arrow-no-extrapolation": slice(100, 32100),
    }
    estimation = source.record(u[first:middle], y[first:middle], "estimation")
    return [estimation], [source.record(u[rows], y[rows], n) for n, rows in tests.items()]


def _wiener_hammerstein(source: Source, paths: list[Path]) -> tuple[list[Record], list[Record]]:
    """The part of the log in which the input moves; its first 100,000 rows estimate."""
    u, y = np.loadtxt(paths[0], delimiter=",", skiprows=1, usecols=(0, 1)).T[:, 5200:184000]
    at = 100_000
    return (
        [source.record(u[:at], y[:at], "estimation")],
        [source.record(u[at:], y[at:], "test")],
    )


def _emps(source: Source, paths: list[Path]) -> tuple[list[Record], list[Record]]:
    """Two experiments: a plain trajectory, and one with pulses of force on top of it."""
    estimation, test = (
        source.record(np.ravel(found["vir"]), np.ravel(found["qm"]), part)
        for found, part in zip(map(scipy.io.loadmat, paths), ("estimation", "test"), strict=True)
    )
    return [estimation], [test]


def _daisy(
    inputs: tuple[str, ...], outputs: tuple[str, ...], first: int = 0
) -> Callable[[Source, list[Path]], tuple[list[Record], list[Record]]]:
    """A cut for one matrix: inputs from column ``first`` on, then the outputs, and no more."""

    def cut(source: Source, paths: list[Path]) -> tuple[list[Record], list[Record]]:
        (matrix,) = (v for k, v in scipy.io.loadmat(paths[0]).items() if not k.startswith("__"))
        u, y = np.split(matrix[:, first:], [len(inputs)], axis=1)
        at = len(u) * DAISY_SHARE // 100
        estimation, test = (
            Record(
                u=u[rows],
                y=y[rows],
                sampling_time=source.sampling_time,
                name=f"{source.name} {part}",
                input_names=inputs,
                output_names=outputs,
            )
            for rows, part in ((slice(at), "estimation"), (slice(at, None), "test"))
        )
        return [estimation], [test]

    return cut


SOURCES: dict[str, Source] = {
    s.name: s
    for s in (
        Source(
            "silverbox",
            {"SNLS80mV.mat": "5c7413a52255af0cb4e2f93fb6903beb92b08965ba1e6ad0a6ffedfed8477ed4"},
            2**14 / 1e7,  # 610.35 Hz
            "electronic mass, damper and hardening spring (Wigren, Schoukens 2013)",
            50,
            _silverbox,
            1e3,
            "mV",
        ),
        Source(
            "wiener-hammerstein",
            {
                "WienerHammerBenchmark.csv": (
                    "95f241ac5e0afb48c47b24b3630f55e0d6f8f2f4dec145bd8adf852b19851fa3"
                )
            },
            1 / 51_200,
            "filter, diode, filter (Schoukens, Suykens, Ljung 2009)",
            50,
            _wiener_hammerstein,
            1e3,
            "mV",
        ),
        Source(
            "emps",
            {
                "DATA_EMPS.mat": "6cf6814ae14618795da0101aae2bb97ff0c6351b0501b5492751b02b07facf7e",
                "DATA_EMPS_PULSES.mat": (
                    "0eab75bb1f6b16228ee78791343a88bf9bfd9a51036ac9807d7b5fc11c0e1704"
                ),
            },
            1e-3,
            "electro-mechanical positioning axis: it integrates, with friction (Janot 2019)",
            20,
            _emps,
            1e3,
            "mm",
        ),
        Source(
            "steam-exchanger",
            {
                "daisy/exchanger.mat": (
                    "73e019dc6f7de66268bf93b6d8d4209e6b003b69460aa6e7abab2848dea96868"
                )
            },
            1.0,
            "liquid flow to outlet temperature of a saturated-steam heat exchanger (DaISy)",
            DAISY_KNOWN,
            _daisy(("liquid flow",), ("outlet temperature",), 1),
            unit="°C",
        ),
        Source(
            "steam-generator",
            {
                "daisy/steamgen.mat": (
                    "2ad24bf4df4f917822b2b7ca682c39488984719924a3a9984bc291f91e3ddf68"
                )
            },
            3.0,
            "steam generator of a power plant, four by four (DaISy)",
            DAISY_KNOWN,
            _daisy(
                ("fuel", "air", "reference level", "disturbance"),
                ("drum pressure", "excess oxygen", "drum level", "steam flow"),
                1,
            ),
        ),
        Source(
            "evaporator",
            {
                "daisy/evaporator.mat": (
                    "2c6cc50ce2c2ac6e54b4cb4a843411d57d8649a6df1d5ed731727a2a407a0f43"
                )
            },
            1.0,  # not told
            "four-stage evaporator, three by three (DaISy)",
            DAISY_KNOWN,
            _daisy(
                ("feed flow", "vapour flow", "cooling flow"), ("dry matter", "flow", "temperature")
            ),
        ),
        Source(
            "robot-arm",
            {
                "daisy/robotArm.mat": (
                    "715cbe2eb98193967c0ca1e96d5b53c153f1d7de95ed749c85d057974cda3537"
                )
            },
            1.0,  # not told
            "torque to acceleration of a flexible arm, lightly damped (DaISy)",
            DAISY_KNOWN,
            _daisy(("torque",), ("acceleration",)),
        ),
        Source(
            "ph",
            {
                "daisy/pHdata.mat": (
                    "0810168e5e1afc0ba00a333bd926dbaa59f76dd6deaf51c1d4cb6eedbc322e54"
                )
            },
            10.0,
            "acid and base flow to pH in a stirred tank, strongly nonlinear (DaISy)",
            DAISY_KNOWN,
            _daisy(("acid flow", "base flow"), ("pH",), 1),
        ),
        Source(
            "cd-player",
            {
                "daisy/cdplayer.mat": (
                    "506d0357eb3fb1b0eeb1817593ac766eafa6764e208c97752be469c693104194"
                )
            },
            1.0,  # not told
            "forces to tracking errors of a CD player's arm, two by two, high order (DaISy)",
            DAISY_KNOWN,
            _daisy(("force 1", "force 2"), ("error 1", "error 2")),
        ),
        Source(
            "glass-furnace",
            {
                "daisy/glassfurnace.mat": (
                    "b084b280aaed7d059a8d40d10c240c5d7c5c4258c435b711ed6f5d3a44583ffb"
                )
            },
            1.0,  # not told
            "heating and cooling to six temperatures of a glass furnace, slow (DaISy)",
            DAISY_KNOWN,
            _daisy(
                ("heating 1", "cooling", "heating 2"),
                tuple(f"temperature {k}" for k in range(1, 7)),
                1,
            ),
        ),
    )
}
