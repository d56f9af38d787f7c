"""Random small models and ensembles, and helpers that build and run what was exported."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.bands.mixture import weighted_median
from occamid.bands.posterior import Posterior
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms
from occamid.export.recursion import FUNCTIONS
from occamid.networks import MLP, Network, Recurrent, is_matrix
from occamid.training.model import Model

Array = np.ndarray
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def random_model(
    seed: int,
    kind: str = "mlp",
    nu: int = 1,
    ny: int = 1,
    hidden: tuple[int, ...] = (4,),
    lags: int = 3,
    activation: str = "tanh",
    density: float = 0.6,
    skip: bool = False,
    bias: bool = True,
    delay: int = 0,
    names: tuple[str, ...] = (),
) -> Model:
    """A model with random weights, pruned at random, that does not run away."""
    rng = np.random.default_rng(seed)
    names = names or tuple(f"u{i}" for i in range(nu)) + tuple(f"y{i}" for i in range(ny))
    terms = Terms(
        tuple((c, lag) for c in range(nu) for lag in range(lags, delay - 1, -1)),
        tuple((c, lag) for c in range(ny) for lag in range(lags, 0, -1)),
        names[:nu],
        names[nu:],
    )
    network: Network
    if kind == "mlp":
        network = MLP(len(terms), hidden, ny, activation, bias, skip)
    else:
        network = Recurrent(kind, len(terms), hidden, ny, "tanh", bias)
    weights = {}
    for name, spec in network.specs().items():
        size = 0.8 / np.sqrt(spec.fan_in)
        value = rng.normal(size=spec.shape) * size
        if name == "skip.W":
            value *= 0.3
        weights[name] = value * (rng.random(spec.shape) < density) if is_matrix(name) else value
    u_std, y_mean, y_std = rng.uniform(0.5, 2, nu), 5 + rng.normal(size=ny), rng.uniform(0.5, 2, ny)
    u_offset, u_mean = rng.normal(size=(2, nu))  # data need not be centred
    scaling = Scaling(u_offset, u_std, y_mean, y_std, u_mean, u_std, y_mean + 0.7, y_std)
    return Model(network, terms, scaling, weights, start=lags, sampling_time=0.5)


def random_ensemble(seed: int, count: int = 3, equal: bool = False, **kinds: object) -> Ensemble:
    """Several such models with unequal shares and a made-up posterior."""
    models = [random_model(seed + 100 * k, **kinds) for k in range(count)]  # type: ignore[arg-type]
    first = models[0]
    members = []
    for model in models:
        small = Model(
            model.network,
            model.terms,
            first.scaling,
            model.weights,
            model.start,
            model.sampling_time,
        ).compact()
        size = sum(v.size for v in small.weights.values())
        flat = np.concatenate([np.ravel(v) for v in small.weights.values()])
        places = np.flatnonzero(flat) if size else np.zeros(0, int)
        members.append(
            Posterior(
                small,
                "diagonal",
                places,
                np.full(len(places), 0.02),
                np.ones(len(places)),
                np.full(small.network.n_out, 0.01),
                float(len(places)),
                0.0,
            )
        )
    shares = np.ones(count) if equal else np.random.default_rng(seed).uniform(0.5, 1.5, count)
    return combine(members, shares)


def signals(model: Model | Ensemble, samples: int, seed: int = 0) -> tuple[Array, Array]:
    """Inputs, and known outputs of twice the lags, in the range of the data."""
    first = model.first if isinstance(model, Ensemble) else model
    rng, s = np.random.default_rng(seed), first.scaling
    u = s.u_offset + s.u_scale * rng.normal(size=(samples, len(s.u_offset)))
    y = s.y_offset + 0.5 * s.y_scale * rng.normal(size=(2 * first.start + 1, len(s.y_offset)))
    return u, y


def plain_loop(model: Model | Ensemble, u: Array, y_init: Array) -> Array:
    """The free run written down again, sample by sample and unit by unit of a member."""
    if isinstance(model, Ensemble):
        runs = np.stack([plain_loop(p.model, u, y_init) for p in model.posteriors])
        return weighted_median(runs, model.weights)
    s, r, W = model.scaling, model.terms, model.weights
    v, w = (u - s.u_offset) / s.u_scale, list((y_init - s.y_offset) / s.y_scale)
    h = [np.zeros(n) for n in model.network.hidden]
    c = [np.zeros(n) for n in model.network.hidden]
    known, found = len(y_init), []
    for t in range(model.start, len(u)):
        z = [v[t - lag, k] for k, lag in r.inputs] + [w[t - lag][k] for k, lag in r.outputs]
        x = np.array(z)
        if isinstance(model.network, MLP):
            y = _perceptron(model.network, W, x)
        else:
            assert isinstance(model.network, Recurrent)
            y = _cells(model.network, W, x, h, c)
        if t >= known:
            w.append(y)
            found.append(y * s.y_scale + s.y_offset)
    return np.concatenate([y_init, np.array(found)])


def _perceptron(network: MLP, W: Mapping[str, Array], z: Array) -> Array:
    a = z
    for layer in range(len(network.hidden) + 1):
        y = W[f"layer{layer}.W"] @ a + W.get(f"layer{layer}.b", 0.0)
        a = FUNCTIONS[network.activation](y)
    return y + W["skip.W"] @ z if network.skip else y


def _cells(
    network: Recurrent, W: Mapping[str, Array], x: Array, h: list[Array], c: list[Array]
) -> Array:
    for k in range(len(network.hidden)):
        a = {
            gate: W[f"{network.kind}{k}.W_i{gate}"] @ x
            + W[f"{network.kind}{k}.W_h{gate}"] @ h[k]
            + W.get(f"{network.kind}{k}.b_{gate}", 0.0)
            for gate in network.cell.gates
        }
        if network.kind == "lstm":
            i, f, o = (1 / (1 + np.exp(-a[gate])) for gate in "ifo")
            c[k] = f * c[k] + i * np.tanh(a["g"])
            h[k] = o * np.tanh(c[k])
        else:
            h[k] = FUNCTIONS[network.activation](a[""])
        x = h[k]
    return W["out.W"] @ x + W.get("out.b", 0.0)


def write(files: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def compile_c(
    folder: Path, *sources: str, compiler: str = "gcc", flags: tuple[str, ...] = ()
) -> Path:
    """The program made of these sources with strict warnings as errors."""
    out = folder / "program"
    command = [compiler, *STRICT, *flags, *sources, "-lm", "-o", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return out


DRIVER = """
#include "model.h"
#include <stdio.h>
int main(void)
{
    static model_state s;
    model_real u[model_NU], m[model_NY], y[model_NY];
    int known, i, t;
    double a;
    if (scanf("%d", &known) != 1) return 1;
    for (t = 0;; ++t) {
        for (i = 0; i < model_NU; ++i) {
            if (scanf("%lf", &a) != 1) return 0;
            u[i] = (model_real)a;
        }
        for (i = 0; i < model_NY; ++i) {
            if (scanf("%lf", &a) != 1) return 1;
            m[i] = (model_real)a;
        }
        if (t == 0) model_init(&s, m);
        if (t < known) model_correct(&s, u, m, y);
        else model_step(&s, u, y);
        for (i = 0; i < model_NY; ++i) printf("%.17g ", (double)y[i]);
        printf("\\n");
    }
}
"""


def run_c(program: Path, u: Array, y_init: Array) -> Array:
    """The free run of a compiled driver after the known outputs."""
    measured = np.zeros((len(u), y_init.shape[1]))
    measured[: len(y_init)] = y_init
    rows = np.concatenate([u, measured], axis=1)
    text = f"{len(y_init)}\n" + "\n".join(" ".join(f"{v:.17g}" for v in row) for row in rows)
    found = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return np.array([line.split() for line in found.stdout.splitlines()], dtype=float)
