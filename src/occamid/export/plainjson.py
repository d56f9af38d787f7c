"""JSON for people who write their own: weights, terms, scaling and the order of the state."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from occamid.export.description import Description, Member
from occamid.export.program import Activate, Affine, Node

FORMAT = 1


def files(d: Description, name: str = "model") -> dict[str, str]:
    """One file; ``docs/deploy.md`` says how to read it."""
    return {"model.json": json.dumps(content(d, name), indent=1, allow_nan=False) + "\n"}


def content(d: Description, name: str = "model") -> dict[str, Any]:
    """The description as plain data."""
    s = d.scaling
    return {
        "format": FORMAT,
        "written by": f"occamid {version('occamid')}",
        "name": name,
        "sampling_time": d.sampling_time,
        "start": d.start,
        "combine": d.combine,
        "inputs": _channels(d.input_names, s.u_offset, s.u_scale),
        "outputs": _channels(d.output_names, s.y_offset, s.y_scale),
        "members": [_member(d, member) for member in d.members],
        "state": [
            {
                "kind": {"u": "past inputs", "y": "past outputs", "x": "carried"}[r.kind],
                "member": None if r.kind == "u" else r.member,
                "name": r.name,
                "offset": r.offset,
                "length": r.length,
            }
            for r in d.registers
        ],
    }


def _channels(names: Any, offset: Any, scale: Any) -> list[dict[str, Any]]:
    return [
        {"name": n, "offset": float(a), "scale": float(b)}
        for n, a, b in zip(names, offset, scale, strict=True)
    ]


def _member(d: Description, member: Member) -> dict[str, Any]:
    terms = [(d.input_names[c], "input", c, lag) for c, lag in member.inputs]
    terms += [(d.output_names[c], "output", c, lag) for c, lag in member.outputs]
    return {
        "share": member.share,
        "regressors": [
            {
                "name": f"{name}[t-{lag}]" if lag else f"{name}[t]",
                "side": side,
                "channel": c,
                "lag": lag,
            }
            for name, side, c, lag in terms
        ],
        "steps": [{"result": name, **_node(node)} for name, node in member.step.nodes.items()],
        "carried": [
            {"name": name, "initial": kept.initial.tolist(), "next": kept.next}
            for name, kept in member.step.carried.items()
        ],
        "output": member.step.output,
    }


def _node(node: Node) -> dict[str, Any]:
    if isinstance(node, Affine):
        parts = [{"source": s, "matrix": M.tolist()} for s, M in node.parts]
        return {"kind": "affine", "parts": parts, "bias": node.bias.tolist()}
    if isinstance(node, Activate):
        return {"kind": "activate", "source": node.source, "function": node.function}
    return {"kind": "products", "pairs": [list(pair) for pair in node.pairs]}
