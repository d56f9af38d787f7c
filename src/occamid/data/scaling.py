"""Offsets and scales per channel, fitted on estimation data and undone on output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float

from occamid.data.record import Record
from occamid.errors import DataError

Array = np.ndarray
Method = Literal["standardize", "detrend", "rescale", "none"]


@dataclass(frozen=True, eq=False)
class Scaling:
    """``scaled = (value - offset) / scale`` for every channel.

    ``mean`` and ``std`` are those of the estimation data, whatever was done with them: what is
    far away or wide is measured in these.
    """

    u_offset: Float[Array, " nu"]
    u_scale: Float[Array, " nu"]
    y_offset: Float[Array, " ny"]
    y_scale: Float[Array, " ny"]
    u_mean: Float[Array, " nu"]
    u_std: Float[Array, " nu"]
    y_mean: Float[Array, " ny"]
    y_std: Float[Array, " ny"]

    @property
    def u_centre(self) -> Float[Array, " nu"]:
        """Mean inputs of the estimation data, in scaled units."""
        return self.apply_u(self.u_mean)

    @property
    def y_centre(self) -> Float[Array, " ny"]:
        """Mean outputs of the estimation data, in scaled units."""
        return self.apply_y(self.y_mean)

    @property
    def y_spread(self) -> Float[Array, " ny"]:
        """Standard deviations of the outputs, in scaled units: 1 where they are standardised."""
        return self.y_std / self.y_scale

    @property
    def u_spread(self) -> Float[Array, " nu"]:
        """Standard deviations of the inputs, in scaled units."""
        return self.u_std / self.u_scale

    def apply(self, record: Record) -> Record:
        """The record in scaled units."""
        return replace(record, u=self.apply_u(record.u), y=self.apply_y(record.y))

    def apply_u(self, u: Float[Array, "... nu"]) -> Float[Array, "... nu"]:
        """Inputs in scaled units."""
        return (u - self.u_offset) / self.u_scale

    def apply_y(self, y: Float[Array, "... ny"]) -> Float[Array, "... ny"]:
        """Outputs in scaled units."""
        return (y - self.y_offset) / self.y_scale

    def undo_y(self, y: Float[Array, "... ny"]) -> Float[Array, "... ny"]:
        """Outputs back in the user's units."""
        return y * self.y_scale + self.y_offset


def fit_scaling(records: Sequence[Record], method: Method) -> Scaling:
    """Fit on the estimation records.

    ``standardize`` removes the mean and divides by the standard deviation of each channel,
    ``detrend`` removes the mean only, ``rescale`` divides only, ``none`` leaves the data as it is.
    """
    u = np.concatenate([r.u for r in records])
    y = np.concatenate([r.y[r.lead :] for r in records])
    for values, names, kind in (
        (u, records[0].input_names, "input"),
        (y, records[0].output_names, "output"),
    ):
        for column, name in zip(values.T, names, strict=True):
            if np.ptp(column) <= 1e-12 * np.abs(column).max():
                raise DataError(
                    f"{kind} {name} is constant ({column[0]:g}) over the estimation data; "
                    "leave it out or use a record in which it moves."
                )

    def offset(x: Float[Array, "N n"]) -> Float[Array, " n"]:
        return x.mean(axis=0) if method in ("standardize", "detrend") else np.zeros(x.shape[1])

    def scale(x: Float[Array, "N n"]) -> Float[Array, " n"]:
        return x.std(axis=0) if method in ("standardize", "rescale") else np.ones(x.shape[1])

    about = u.mean(axis=0), u.std(axis=0), y.mean(axis=0), y.std(axis=0)
    return Scaling(offset(u), scale(u), offset(y), scale(y), *about)
