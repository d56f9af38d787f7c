"""Lags from the data: large enough for what matters, pruning removes the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from occamid.data.record import Record
from occamid.data.windows import all_terms, windows

Array = np.ndarray


def propose_lags(
    records: Sequence[Record],
    *,
    outputs: bool = True,
    largest: int = 200,
    most_terms: int = 12,
) -> tuple[int, int]:
    """Input and output lags for these (scaled) estimation records.

    A linear model is grown one regressor at a time, always the one that reduces the squared
    one-step error most (orthogonal least squares), among all lags up to ``largest`` or a tenth
    of the data, until the extended Bayesian information criterion (Chen and Chen, 2008), which
    also counts how many candidates were searched, rises or ``most_terms`` are in.  The
    proposal is a quarter more than the largest lag chosen for inputs and for outputs, and at
    least 10.  It only has to be large enough: pruning removes what is not needed.  Without
    ``outputs`` only inputs are offered.
    """
    lengths = [len(r) - r.lead for r in records]
    limit = max(1, min(largest, sum(lengths) // 10, min(lengths) // 3))
    offered = all_terms(records[0], limit, limit if outputs else 0)
    data = windows(records, offered, limit)
    rows = np.asarray(data.valid, dtype=bool).reshape(-1)
    z = np.asarray(data.z, dtype=np.float64).reshape(len(rows), -1)[rows]
    y = np.asarray(data.y, dtype=np.float64).reshape(len(rows), -1)[rows]
    z = (z - z.mean(axis=0)) / (z.std(axis=0) + 1e-12)
    chosen = _forward_selection(z, y - y.mean(axis=0), most_terms)
    terms = offered.inputs + offered.outputs
    n_inputs = len(offered.inputs)
    reach = lambda picks: max((terms[j][1] for j in picks), default=0)  # noqa: E731
    proposal = [
        min(max(limit, 1), max(10, int(np.ceil(1.25 * reach(picks)))))
        for picks in ([j for j in chosen if j < n_inputs], [j for j in chosen if j >= n_inputs])
    ]
    return proposal[0], proposal[1]


def _forward_selection(z: Float[Array, "T nz"], y: Float[Array, "T ny"], most: int) -> list[int]:
    """Greedy orthogonal least squares with extended BIC as the stop, in the order chosen."""
    n, candidates = z.shape
    residual, basis = y.copy(), z.copy()
    chosen: list[int] = []
    best = np.inf
    while len(chosen) < min(most, candidates):
        norms = np.einsum("tj,tj->j", basis, basis)
        gains = np.sum((basis.T @ residual) ** 2, axis=1) / np.maximum(norms, 1e-9 * n)
        gains[chosen] = -1.0
        pick = int(np.argmax(gains))
        q = basis[:, pick] / np.sqrt(max(norms[pick], 1e-9 * n))
        residual -= np.outer(q, q @ residual)
        bic = n * np.sum(np.log(np.mean(residual**2, axis=0) + 1e-300)) + (
            (len(chosen) + 1) * (y.shape[1] * np.log(n) + 2 * np.log(candidates))
        )
        if bic >= best:
            break
        best = bic
        chosen.append(pick)
        basis -= np.outer(q, q @ basis)
    return chosen
