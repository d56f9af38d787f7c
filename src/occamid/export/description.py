"""A model or an ensemble as plain data: everything a target needs, and nothing of the training.

A description is a scaled lag recursion.  With scaled inputs ``v = (u − u_offset) / u_scale``, every
member k reads its own lagged terms

    ``z_k(t) = [v_c(t − l) …, w_kc(t − l) …]``,

computes its own scaled output ``w_k(t)`` and feeds it back to itself; the output of the model is
the weighted median (or mean) of the members, back in the user's units.  The state of the whole
recursion is one vector (:class:`Description.registers`): past inputs, shared by all members, then
for each member its past outputs and what its network carries, all in scaled units.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from occamid.bands.ensemble import Ensemble
from occamid.data.scaling import Scaling
from occamid.data.windows import Term
from occamid.errors import DataError, check_choice
from occamid.export.kinds import step_of
from occamid.export.program import Step, simplify
from occamid.training.model import Model

Array = np.ndarray
Combine = Literal["median", "mean"]


@dataclass(frozen=True, eq=False)
class Member:
    """One model of the mixture: its share, the terms it reads, and its network as a program."""

    share: float
    inputs: tuple[Term, ...]
    outputs: tuple[Term, ...]
    step: Step


class Register(NamedTuple):
    """A piece of the state.

    ``kind`` is ``u`` (past inputs of a channel, newest first), ``y`` (past outputs of a channel as
    one member predicted them, newest first) or ``x`` (what a network carries, by name).
    """

    kind: Literal["u", "y", "x"]
    member: int
    channel: int
    name: str
    offset: int
    length: int

    @property
    def end(self) -> int:
        """One past its last place in the state."""
        return self.offset + self.length


COARSEST = 1e-3  # standard deviations of a channel that a digit of single precision may be


@dataclass(frozen=True, eq=False)
class Description:
    """Everything about a model that runs it.

    ``start`` is the number of samples that only fill the registers before a recurrent network
    begins to run, as in its training.
    """

    members: tuple[Member, ...]
    scaling: Scaling
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    sampling_time: float
    start: int
    combine: Combine = "median"

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return len(self.input_names)

    @property
    def ny(self) -> int:
        """Number of outputs."""
        return len(self.output_names)

    @property
    def recurrent(self) -> bool:
        """Whether a network carries something itself, so that filling is not running."""
        return any(member.step.carried for member in self.members)

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        """The pieces of the state in order."""
        found: list[Register] = []

        def add(kind: Literal["u", "y", "x"], member: int, channel: int, name: str, n: int) -> None:
            if n:
                offset = found[-1].end if found else 0
                found.append(Register(kind, member, channel, name, offset, n))

        terms = [term for member in self.members for term in member.inputs]
        for c, name in enumerate(self.input_names):
            add("u", -1, c, name, longest(terms, c))
        for k, member in enumerate(self.members):
            for c, name in enumerate(self.output_names):
                add("y", k, c, name, longest(member.outputs, c))
            for name, kept in member.step.carried.items():
                add("x", k, -1, name, kept.size)
        return tuple(found)

    @property
    def size(self) -> int:
        """Numbers in the state."""
        return self.registers[-1].end if self.registers else 0

    def place(self, kind: str, member: int, channel: int = -1, name: str = "") -> Register:
        """The register of a channel, or of something carried."""
        for r in self.registers:
            if (r.kind, r.member) == (kind, member) and (
                r.name == name if kind == "x" else r.channel == channel
            ):
                return r
        raise KeyError((kind, member, channel, name))

    def state_names(self) -> tuple[str, ...]:
        """A printable name for every number of the state."""
        found = []
        many = len(self.members) > 1
        for r in self.registers:
            owner = f"member {r.member + 1}: " if many and r.kind != "u" else ""
            for k in range(r.length):
                at = f"{r.name}[{k}]" if r.kind == "x" else f"{r.name}[t-{k + 1}]"
                found.append(owner + at)
        return tuple(found)


def check_single(d: Description) -> None:
    """Refuse single precision where a channel moves little about a level far from zero."""
    s = d.scaling
    sides = (d.input_names, s.u_mean, s.u_std), (d.output_names, s.y_mean, s.y_std)
    for names, mean, std in sides:
        digit = np.finfo(np.float32).eps * np.abs(mean)
        for k in np.flatnonzero(digit > COARSEST * std)[:1]:
            raise DataError(
                f"{names[k]} lies around {mean[k]:.4g} and moves by {std[k]:.2g}, of which single "
                f"precision knows no more than {digit[k]:.1g}; export with `precision` double."
            )


def longest(terms: list[Term] | tuple[Term, ...], channel: int) -> int:
    """The largest lag of a channel."""
    return max((lag for c, lag in terms if c == channel), default=0)


def describe(model: Model | Ensemble | Description, combine: str = "median") -> Description:
    """The description of a model, or of an ensemble with the centre of its members."""
    check_choice("combine", combine, ("median", "mean"))
    if isinstance(model, Description):
        return model
    if isinstance(model, Ensemble):
        models = [p.model for p in model.posteriors]
        shares = np.asarray(model.weights, dtype=np.float64)
    else:
        models, shares = [model], np.ones(1)
    first = models[0]
    names = first.terms
    return Description(
        members=tuple(_member(m, float(s)) for m, s in zip(models, shares, strict=True)),
        scaling=first.scaling,
        input_names=names.input_names,
        output_names=names.output_names,
        sampling_time=float(first.sampling_time),
        start=max(first.start, max(m.max_lag for m in models)),
        combine=combine,  # type: ignore[arg-type]
    )


def _member(model: Model, share: float) -> Member:
    small = model.compact()
    terms, step = small.terms, step_of(small.network, small.weights, small.scaling.y_centre)
    return Member(share, terms.inputs, terms.outputs, simplify(step))
