"""What families answer in one fold, as bytes of safetensors that need no pickle, and their key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.numpy import load, save

from occamid.bands.combine import made_of
from occamid.bands.ensemble import Ensemble
from occamid.bands.modelfile import packed, unpacked
from occamid.data.record import Record
from occamid.errors import OccamidError
from occamid.files.checkpoints import digest_of
from occamid.identification.folds import Fold
from occamid.identification.options import Options
from occamid.training.provenance import provenance_key, source

Array = np.ndarray
HEADER = "header"  # the array that holds the header, as JSON


class Answer(NamedTuple):
    """A family in one fold: its model and its misses, or why there are none."""

    model: Ensemble | None
    misses: list[Float[Array, "T ny"]]
    seconds: float
    failed: str = ""


Answers = dict[str, Answer]


def key_of(
    options: Options, given: int | None, fold: Fold, where: str, names: Sequence[str]
) -> str:
    """A name for everything that determines the answers: data, options, fold, families, source."""
    asked = [options.model_dump(mode="json"), given, where, list(names)]
    lesson, runs = fold.lesson, fold.runs
    return digest_of(
        [provenance_key(), source(), json.dumps(asked), repr(options.budget), repr(fold.shape)],
        [_identity(record) for record in lesson.records],
        [[*_identity(record), seen] for record, seen in lesson.blanked],
        [[*_identity(part.record), part.known] for part in runs],
        [len(lesson.records), len(lesson.blanked), len(runs)],
    )


def _identity(record: Record) -> list[Any]:
    """Everything of a record that a model can tell from another."""
    about = (record.name, record.input_names, record.output_names, record.sampling_time)
    return [record.u, record.y, record.lead, json.dumps(about)]


def to_bytes(answers: Mapping[str, Answer]) -> bytes:
    """Answers of several families as one entry of a store."""
    arrays: dict[str, Array] = {}
    header = []
    for k, (name, answer) in enumerate(answers.items()):
        model = None
        if answer.model is not None:
            model, own = packed(answer.model.contents())
            arrays |= {f"{k}/model/{key}": value for key, value in own.items()}
        arrays |= {f"{k}/miss/{j}": miss for j, miss in enumerate(answer.misses)}
        about = {"name": name, "seconds": answer.seconds, "failed": answer.failed}
        header.append(about | {"model": model, "misses": len(answer.misses)})
    arrays[HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return save({name: np.ascontiguousarray(value) for name, value in arrays.items()})


def from_bytes(content: bytes) -> Answers | None:
    """What :func:`to_bytes` was given, to the last bit; None where that cannot be had again."""
    try:
        arrays = load(content)
        header = json.loads(arrays[HEADER].tobytes())
        return {about["name"]: _answer(arrays, k, about) for k, about in enumerate(header)}
    except (SafetensorError, OccamidError, LookupError, TypeError, ValueError, OverflowError):
        return None


def _answer(arrays: Mapping[str, Array], k: int, about: Mapping[str, Any]) -> Answer:
    model, folder = None, f"{k}/model/"
    if about["model"] is not None:
        own = {n.removeprefix(folder): x for n, x in arrays.items() if n.startswith(folder)}
        model = made_of(unpacked(about["model"], own))
    misses = [arrays[f"{k}/miss/{j}"] for j in range(about["misses"])]
    return Answer(model, misses, float(about["seconds"]), str(about["failed"]))
