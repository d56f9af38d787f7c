"""ONNX: a step, a corrected step, filling, and a whole sequence as a Scan over the step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from occamid.errors import check_choice
from occamid.export import recursion
from occamid.export.description import Combine, Description
from occamid.export.needs import load

Array = np.ndarray
OPSET = 18  # TopK, CumSum, Scan and Softplus as they are here; onnxruntime 1.14 and later
IR_VERSION = 8
KINDS = {"float": np.float32, "double": np.float64}


class Graph:
    """Collects nodes and constants; a vector is the name of a one-dimensional tensor."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.helper = load("onnx").helper
        self.numpy = load("onnx").numpy_helper
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """A node with one output."""
        name = out or f"t{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Array) -> str:
        """An initializer."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(self.kind)
        name = f"c{len(self.constants)}"
        self.constants[name] = self.numpy.from_array(array, name)
        return name

    def affine(
        self, parts: Sequence[tuple[str, Float[Array, "n _"]]], bias: Float[Array, " n"]
    ) -> str:
        """``Σ_k M_k s_k + b``."""
        total = self.constant(bias)
        for source, M in parts:
            total = self.add("Add", total, self.add("MatMul", self.constant(M), source))
        return total

    def activate(self, source: str, function: str) -> str:
        """``σ(s)``."""
        simple = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softplus": "Softplus"}
        if function in simple:
            return self.add(simple[function], source)
        if function == "elu":
            return self.add("Elu", source)
        if function == "silu":
            return self.add("Mul", source, self.add("Sigmoid", source))
        cube = self.add("Mul", source, self.add("Mul", source, source))
        inner = self.add("Add", source, self.add("Mul", self._scalar(0.044715), cube))
        bent = self.add("Tanh", self.add("Mul", self._scalar(np.sqrt(2 / np.pi)), inner))
        half = self.add("Mul", self._scalar(0.5), source)
        return self.add("Mul", half, self.add("Add", self._scalar(1.0), bent))

    def _scalar(self, value: float) -> str:
        return self.constant(np.array(value))

    def products(self, pairs: Sequence[tuple[str, str]]) -> str:
        """``Σ_k a_k ⊙ b_k``."""
        found = [self.add("Mul", a, b) for a, b in pairs]
        total = found[0]
        for other in found[1:]:
            total = self.add("Add", total, other)
        return total

    def pick(self, parts: Sequence[tuple[str, Sequence[int]]]) -> str:
        """Entries of several vectors: a Gather from each run of equal sources, then a Concat."""
        runs: list[tuple[str, list[int]]] = []
        for source, places in parts:
            if runs and runs[-1][0] == source:
                runs[-1][1].extend(places)
            elif len(places):
                runs.append((source, list(places)))
        if not runs:
            return self.constant(np.zeros(0))
        found = [
            self.add("Gather", source, self.constant(np.array(at, np.int64)), axis=0)
            for source, at in runs
        ]
        return found[0] if len(found) == 1 else self.add("Concat", *found, axis=0)

    def scaled(self, value: str, offset: Array, scale: Array) -> str:
        """``(value − offset) / scale``."""
        return self.add("Div", self.add("Sub", value, self.constant(offset)), self.constant(scale))

    def unscaled(self, value: str, offset: Array, scale: Array) -> str:
        """``value · scale + offset``."""
        return self.add("Add", self.add("Mul", value, self.constant(scale)), self.constant(offset))

    def centre(self, values: Sequence[str], shares: Array, combine: Combine) -> str:
        """Weighted mean, or the weighted median by sorting the members of each output."""
        axes = self.constant(np.array([0], np.int64))
        stacked = self.add("Concat", *(self.add("Unsqueeze", v, axes) for v in values), axis=0)
        if combine == "mean":
            return self.add("MatMul", self.constant(shares), stacked)
        count = self.constant(np.array([len(values)], np.int64))
        ranked, order = f"s{len(self.nodes)}", f"o{len(self.nodes)}"
        self.nodes.append(
            self.helper.make_node("TopK", [stacked, count], [ranked, order], axis=0, largest=0)
        )
        share = self.add("Gather", self.constant(shares), order, axis=0)
        total = self.add("CumSum", share, self.constant(np.array(0, np.int64)))
        eps = 1e-12 if self.kind is np.float64 else 1e-5
        ends = []
        for edge in (0.5 - eps, 0.5 + eps):
            above = self.add("Greater", total, self._scalar(edge))
            first = self.add(
                "Cast", above, to=self.helper.np_dtype_to_tensor_dtype(np.dtype(np.int32))
            )
            at = self.add("ArgMax", first, axis=0, keepdims=1)
            ends.append(self.add("Squeeze", self.add("GatherElements", ranked, at, axis=0), axes))
        return self.add("Mul", self._scalar(0.5), self.add("Add", *ends))


def files(
    d: Description, name: str = "model", precision: Literal["float", "double"] = "float"
) -> dict[str, bytes]:
    """``step``, ``correct``, ``fill`` and ``sequence`` as checked ONNX models."""
    check_choice("precision", precision, KINDS)
    onnx = load("onnx")
    found = {}
    for what in ("step", "correct", "fill", "sequence"):
        model = build(d, what, KINDS[precision], name)
        onnx.checker.check_model(model, full_check=True)
        found[f"{what}.onnx"] = model.SerializeToString()
    return found


def build(d: Description, what: str, kind: type, name: str = "model") -> Any:
    """One model.  A state of length zero has length one, because runtimes stumble over nothing."""
    g = Graph(kind)
    helper = g.helper
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    sizes = {"state": max(d.size, 1), "u": d.nu, "y_measured": d.ny, "y": d.ny, "state_next": 0}
    sizes["state_next"] = sizes["state"]

    def info(names: Sequence[str], time: bool = False) -> list[Any]:
        series = ("u", "y") if time else ()
        return [
            helper.make_tensor_value_info(
                n, element, ["time", sizes[n]] if n in series else [sizes[n]]
            )
            for n in names
        ]

    inputs = ["state", "u"] + (["y_measured"] if what in ("correct", "fill") else [])
    outputs = ["state_next"] + (["y"] if what != "fill" else [])
    if what == "sequence":
        body = Graph(kind)
        _recursion(d, body, "step", {"state": "x_in", "u": "u_now"}, "x_out", "y_now")
        sizes |= {"x_in": sizes["state"], "x_out": sizes["state"], "u_now": d.nu, "y_now": d.ny}
        inner = helper.make_graph(
            body.nodes,
            "one_step",
            info(["x_in", "u_now"]),
            info(["x_out", "y_now"]),
            list(body.constants.values()),
        )
        g.nodes.append(
            helper.make_node(
                "Scan", ["state", "u"], ["state_next", "y"], num_scan_inputs=1, body=inner
            )
        )
    else:
        _recursion(d, g, what, {n: n for n in inputs}, "state_next", "y")
    graph = helper.make_graph(
        g.nodes,
        f"occamid_{what}",
        info(inputs, what == "sequence"),
        info(outputs, what == "sequence"),
        list(g.constants.values()),
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="occamid",
        producer_version=version("occamid"),
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, _metadata(d, name))
    return model


def _recursion(
    d: Description, g: Graph, what: str, source: Mapping[str, str], state: str, y: str
) -> None:
    """The nodes of one step, with the names that its results must have."""
    known = source.get("y_measured")
    if what == "fill":
        assert known is not None
        after = recursion.fill(d, g, source["state"], source["u"], known)
    else:
        after, out = recursion.step(d, g, source["state"], source["u"], known)
        g.add("Identity", out, out=y)
    if d.size == 0:
        after = source["state"]
    g.add("Identity", after, out=state)


def _metadata(d: Description, name: str) -> dict[str, str]:
    return {
        "name": name.encode("utf-8", "replace").decode("utf-8"),
        "inputs": json.dumps(d.input_names),
        "outputs": json.dumps(d.output_names),
        "state": json.dumps(d.state_names()),
        "initial_state": json.dumps(recursion.initial_state(d).tolist()),
        "sampling_time": repr(d.sampling_time),
        "start": str(d.start),
        "members": str(len(d.members)),
    }
