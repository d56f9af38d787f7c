"""Models in one file: safetensors with a JSON header, no pickle, nothing executed on loading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from occamid.bands.calibration import HORIZONS
from occamid.bands.mixture import Feedback
from occamid.bands.posterior import METHODS, Posterior
from occamid.bands.regions import Regions
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms
from occamid.errors import FileError
from occamid.files.atomic import replace_file
from occamid.files.manifest import MODEL, model_file
from occamid.networks import ACTIVATIONS, MLP, Network, Observer, Recurrent
from occamid.training.model import Model

Array = np.ndarray
NAME = MODEL  # in a run folder
FORMAT = 6  # since 4 families beside the leading one, since 5 regions, since 6 mean inputs
KINDS = ("lstm", "rnn")
SCALING = ("u_offset", "u_scale", "y_offset", "y_scale", "u_mean", "u_std", "y_mean", "y_std")
POSTERIOR = ("positions", "factor", "widths", "noise_variance")


class Contents(NamedTuple):
    """What makes an ensemble: posteriors, their shares, width of bands and place of noise.

    ``tail`` holds the last inputs and outputs of the estimation data, ``candidates`` is the number
    of parameters before pruning, ``beside`` are other families with their shares of every run.
    """

    posteriors: tuple[Posterior, ...]
    weights: Float[Array, " K"]
    inflation: Float[Array, "H ny"]
    regions: Regions | None
    feedback: Feedback
    tail: tuple[Float[Array, "n nu"], Float[Array, "n ny"]] | None = None
    candidates: int | None = None
    beside: tuple[tuple[Contents, float], ...] = ()


def write(path: str | Path, ensemble: Contents, about: Mapping[str, Any] | None = None) -> None:
    """Write an ensemble with all its posteriors; an existing file is replaced at the end.

    ``about`` is kept in the header for people: settings, provenance.
    """
    header, arrays = packed(ensemble)
    header = {"format": FORMAT, "version": version("occamid"), "about": dict(about or {})} | header
    content = save(
        {name: np.ascontiguousarray(value) for name, value in arrays.items()},
        metadata={"occamid": json.dumps(header)},
    )
    replace_file(Path(path), content)


def packed(ensemble: Contents) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays; those of a family beside it are in a header of its own and a folder."""
    first = ensemble.posteriors[0].model
    arrays: dict[str, Array] = {"weights": ensemble.weights, "inflation": ensemble.inflation}
    if ensemble.regions is not None:
        arrays |= {f"regions/{key}": x for key, x in ensemble.regions._asdict().items()}
    arrays |= {f"scaling/{key}": getattr(first.scaling, key) for key in SCALING}
    if ensemble.tail is not None:
        arrays |= {f"tail/{letter}": x for letter, x in zip("uy", ensemble.tail, strict=True)}
    members = []
    for k, p in enumerate(ensemble.posteriors):
        arrays |= {f"{k}/{key}": getattr(p, key) for key in POSTERIOR}
        arrays |= {f"{k}/params/{name}": value for name, value in p.model.weights.items()}
        arrays |= {f"{k}/prior/{name}": v for name, v in (p.model.prior_widths or {}).items()}
        members.append(
            {
                "network": {"family": type(p.model.network).__name__} | asdict(p.model.network),  # type: ignore[call-overload]
                "inputs": p.model.terms.inputs,
                "outputs": p.model.terms.outputs,
                "method": p.method,
                "effective": p.effective,
                "log_evidence": p.log_evidence,
            }
        )
    beside = []
    for k, (own, share) in enumerate(ensemble.beside):
        header, more = packed(own)
        beside.append(header | {"share": share})
        arrays |= {f"beside/{k}/{name}": value for name, value in more.items()}
    header = {
        "feedback": ensemble.feedback,
        "candidates": ensemble.candidates,
        "start": first.start,
        "sampling_time": first.sampling_time,
        "input_names": first.terms.input_names,
        "output_names": first.terms.output_names,
        "members": members,
        "beside": beside,
    }
    return header, arrays


def read_about(path: str | Path) -> dict[str, Any]:
    """What :func:`write` was told about the model."""
    about = _read(model_file(path))[0].get("about")
    return about if isinstance(about, dict) else {}


def read(path: str | Path) -> Contents:
    """Read what :func:`write` wrote; anything else is refused with the reason."""
    path = model_file(path)
    header, arrays = _read(path)
    found = header.get("format")
    if found != FORMAT:
        advice = "Update occamid" if isinstance(found, int) and found > FORMAT else "Identify again"
        raise FileError(
            f"{path} has format {found}, written by occamid {header.get('version', '?')}; "
            f"this version reads format {FORMAT}. {advice}."
        )
    broken = [name for name, value in arrays.items() if not np.isfinite(value).all()]
    if broken:
        raise FileError(
            f"{path} holds non-finite values in {broken[0]}; the file is damaged, copy it again."
        )
    try:
        return unpacked(header, arrays)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise FileError(
            f"{path} is not a complete model file: {reason.rstrip('.')}; copy it again, or "
            "identify again."
        ) from None


def unpacked(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Contents:
    """The contents, each part checked against the others."""
    posteriors = tuple(_member(header, arrays, k) for k in range(len(header["members"])))
    feedback = header["feedback"]
    if feedback not in get_args(Feedback):
        raise ValueError(f"feedback is {feedback!r}")
    weights = arrays["weights"]
    if weights.dtype.kind != "f" or weights.shape != (len(posteriors),):
        raise ValueError(f"weights is not one number for each of {len(posteriors)} members")
    if not ((weights >= 0).all() and weights.sum() > 0):
        raise ValueError("weights is not shares of a whole")
    inflation = _positive(arrays, "inflation", (len(HORIZONS), len(header["output_names"])))
    regions = _regions(arrays, len(header["output_names"]))
    tail = _tail(arrays, posteriors[0].model.terms)
    beside = tuple(_beside(header, arrays, k) for k in range(len(header["beside"])))
    if sum(share for _, share in beside) >= 1:
        raise ValueError("families beside the leading one have all the shares")
    candidates = _candidates(header)
    return Contents(posteriors, weights, inflation, regions, feedback, tail, candidates, beside)


def _regions(arrays: Mapping[str, Array], outputs: int) -> Regions | None:
    """Levels of every output and factors there, where the file has them."""
    if "regions/levels" not in arrays:
        return None
    levels = arrays["regions/levels"]
    if levels.dtype.kind != "f" or levels.ndim != 2 or levels.shape[1] != outputs:
        raise ValueError(f"regions/levels is not numbers for each of {outputs} outputs")
    if not (np.diff(levels, axis=0) > 0).all():
        raise ValueError("regions/levels is not in rising order")
    return Regions(levels, _positive(arrays, "regions/factors", (len(HORIZONS), *levels.shape)))


def _beside(
    header: Mapping[str, Any], arrays: Mapping[str, Array], k: int
) -> tuple[Contents, float]:
    """A family beside the leading one, of the same channels."""
    own, folder = header["beside"][k], f"beside/{k}/"
    inside = {n.removeprefix(folder): x for n, x in arrays.items() if n.startswith(folder)}
    share = float(own["share"])
    names = ("input_names", "output_names", "sampling_time")
    if own["beside"] or any(own[n] != header[n] for n in names) or not 0 < share < 1:
        raise ValueError(f"family {k + 1} beside the leading one does not fit it")
    return unpacked(own, inside), share


def _tail(
    arrays: Mapping[str, Array], terms: Terms
) -> tuple[Float[Array, "n nu"], Float[Array, "n ny"]] | None:
    """The last inputs and outputs of the estimation data, where the file has them."""
    if "tail/u" not in arrays:
        return None
    u, y = arrays["tail/u"], arrays["tail/y"]
    shapes = (len(u), len(terms.input_names)), (len(u), len(terms.output_names))
    if (u.shape, y.shape) != shapes or {u.dtype.kind, y.dtype.kind} != {"f"}:
        raise ValueError("tail/u and tail/y do not fit the channels")
    return u, y


def _candidates(header: Mapping[str, Any]) -> int | None:
    found = header.get("candidates")
    if found is not None and (isinstance(found, bool) or int(found) != found or found < 1):
        raise ValueError(f"candidates is {found!r}")
    return None if found is None else int(found)


def _positive(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    """An array of positive numbers, as scales and variances must be."""
    found = arrays[name]
    if found.dtype.kind != "f" or found.shape != shape or not (found > 0).all():
        raise ValueError(f"{name} is not {shape} positive numbers")
    return found


def _member(header: Mapping[str, Any], arrays: Mapping[str, Array], k: int) -> Posterior:
    own = header["members"][k]
    network, terms = _network(dict(own["network"])), _terms(header, k)
    channels = len(terms.input_names), len(terms.output_names)
    start, sampling_time = int(header["start"]), float(header["sampling_time"])
    if start < terms.max_lag or not 0 < sampling_time < np.inf:
        raise ValueError(f"start {start} or sampling time {sampling_time:g} cannot be")
    shape = (network.n_in, network.n_out)
    if shape != (len(terms), channels[1]) or own["method"] not in METHODS:
        raise ValueError(f"member {k} contradicts itself")
    weights = {name: arrays[f"{k}/params/{name}"] for name in network.specs()}
    for name, spec in network.specs().items():
        if weights[name].shape != spec.shape:
            raise ValueError(f"{name} of member {k} has shape {weights[name].shape}")
        if weights[name].dtype.kind != "f":
            raise ValueError(f"{name} of member {k} does not hold real numbers")
    prior = {n: arrays[f"{k}/prior/{n}"] for n in weights if f"{k}/prior/{n}" in arrays}
    if any(prior[n].shape != weights[n].shape for n in prior):
        raise ValueError(f"the prior of member {k} does not fit its weights")
    positions = arrays[f"{k}/positions"]
    size = sum(value.size for value in weights.values())
    factor = arrays[f"{k}/factor"]
    if (
        len({len(positions), len(factor), len(arrays[f"{k}/widths"])}) != 1
        or factor.ndim not in (1, 2)
        or factor.shape[-1] > len(positions)
        or not np.all((positions >= 0) & (positions < size))
        or len(set(positions.tolist())) < len(positions)
        or factor.dtype.kind != "f"
        or not np.all(np.any(factor, axis=1) if factor.ndim == 2 else factor)
    ):
        raise ValueError(f"the posterior of member {k} does not fit its weights")
    _positive(arrays, f"{k}/widths", positions.shape)
    _positive(arrays, f"{k}/noise_variance", channels[1:])
    for letter, count in zip("uy", channels, strict=True):
        for what in ("scale", "std"):
            _positive(arrays, f"scaling/{letter}_{what}", (count,))
        for what in ("offset",) if letter == "u" else ("offset", "mean"):
            if arrays[f"scaling/{letter}_{what}"].shape != (count,):
                raise ValueError(f"scaling/{letter}_{what} does not fit the channels")
    model = Model(
        network=network,
        terms=terms,
        scaling=Scaling(*(arrays[f"scaling/{key}"] for key in SCALING)),
        weights=weights,
        start=start,
        sampling_time=sampling_time,
        prior_widths=prior or None,
    )
    return Posterior(
        model=model,
        method=own["method"],
        **{key: arrays[f"{k}/{key}"] for key in POSTERIOR},
        effective=float(own["effective"]),
        log_evidence=float(own["log_evidence"]),
    )


def _terms(header: Mapping[str, Any], k: int) -> Terms:
    """The regressors of a member, each of a channel that is there."""
    own = header["members"][k]
    terms = Terms(
        inputs=tuple((int(c), int(lag)) for c, lag in own["inputs"]),
        outputs=tuple((int(c), int(lag)) for c, lag in own["outputs"]),
        input_names=tuple(header["input_names"]),
        output_names=tuple(header["output_names"]),
    )
    names = (*terms.input_names, *terms.output_names)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError("the names of the channels repeat or are not text")
    channels = len(terms.input_names), len(terms.output_names)
    for side, count, least in zip((terms.inputs, terms.outputs), channels, (0, 1), strict=True):
        if not all(0 <= c < count and least <= lag for c, lag in side):
            raise ValueError(f"a regressor of member {k} is of no channel or of the future")
    return terms


def _network(fields: dict[str, Any]) -> Network:
    family = {"MLP": MLP, "Observer": Observer, "Recurrent": Recurrent}[fields.pop("family")]
    fields["hidden"] = tuple(map(int, fields["hidden"]))
    network = family(**fields)
    if network.activation not in ACTIVATIONS or getattr(network, "kind", "rnn") not in KINDS:
        raise ValueError("a network of an unknown kind or activation")
    return network


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of a safetensors file; the format itself bounds what is read."""
    if not path.is_file():
        raise FileError(f"{path} is not a file; name a run folder of identify, or a model file.")
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("occamid")
            if text is None:
                raise FileError(
                    f"{path} is a safetensors file, but not one of occamid's; name "
                    "model.safetensors of a run folder."
                )
            header = json.loads(text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError, RecursionError) as error:
        raise FileError(
            f"{path} is not a readable model file ({error}); name a run folder of identify, or "
            "copy the file again."
        ) from None
    if not isinstance(header, dict):
        raise FileError(
            f"{path} is not a complete model file: its header is no table; copy it "
            "again, or identify again."
        )
    return header, arrays
