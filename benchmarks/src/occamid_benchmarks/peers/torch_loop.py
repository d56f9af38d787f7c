"""What many would write in PyTorch: one network, Adam on all rows, a group penalty, in a loop.

``python torch_loop.py ROWS.npz SETTINGS`` prints how many epochs of one model a second it does.
Nothing here imports occamid.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch

Settings = dict[str, Any]


class Lstm(torch.nn.Module):
    """One layer of LSTM and a linear output."""

    def __init__(self, inputs: int, units: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.cell = torch.nn.LSTM(inputs, units, bias=bias, batch_first=True)
        self.out = torch.nn.Linear(units, outputs, bias=bias)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Outputs of every row."""
        found: torch.Tensor = self.out(self.cell(z)[0])
        return found


def network(shape: Settings, inputs: int, outputs: int) -> torch.nn.Module:
    """The network of the settings."""
    if shape["network"] == "lstm":
        return Lstm(inputs, shape["hidden"][0], outputs, shape["bias"])
    widths = [inputs, *shape["hidden"], outputs]
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(widths):
        layers.append(torch.nn.Linear(before, after, bias=shape["bias"]))
        layers.append({"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}.get(
            shape["activation"], torch.nn.Identity
        )())  # fmt: skip
    return torch.nn.Sequential(*layers[:-1])


def penalty(model: torch.nn.Module) -> torch.Tensor:
    """The group lasso over rows and columns of every matrix."""
    each = [p for p in model.parameters() if p.ndim == 2]
    return torch.stack([p.norm(dim=0).sum() + p.norm(dim=1).sum() for p in each]).sum()


def measure(data: dict[str, np.ndarray], shape: Settings) -> dict[str, Any]:
    """Epochs of one model a second, after a few that are not counted."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    z, y, valid = (torch.tensor(data[k], dtype=torch.float32, device=device) for k in data)
    model = network(shape, z.shape[-1], y.shape[-1]).to(device)
    adam = torch.optim.Adam(model.parameters(), lr=shape["learning_rate"])

    def epoch() -> None:
        adam.zero_grad()
        miss = (model(z) - y) * valid
        loss = torch.sqrt((miss**2).sum() / valid.sum()) + shape["lam"] * penalty(model)
        loss.backward()
        adam.step()

    for _ in range(5):
        epoch()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < shape["seconds"]:
        epoch()
        count += 1
    if device == "cuda":
        torch.cuda.synchronize()
    rate = count / (time.perf_counter() - began)
    return {
        "models_epochs_per_second": round(rate, 1),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": device,
    }


if __name__ == "__main__":
    with np.load(sys.argv[1], allow_pickle=False) as rows:
        print(
            json.dumps(measure({k: rows[k] for k in ("z", "y", "valid")}, json.loads(sys.argv[2])))
        )
