"""Every example of docs/deploy.md, run as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from occamid import Settings, ensemble_of, train
from occamid.data import twins

PAGE = Path(__file__).parent.parent.parent / "docs" / "deploy.md"
BLOCKS = re.findall(r"```(bash|python|c)\n(.*?)```", PAGE.read_text("utf-8"), flags=re.S)
MODEL = Settings(
    hidden=(6,),
    activation="tanh",
    input_lags=6,
    output_lags=4,
    skip=True,
    restarts=6,
    cycles=3,
    epochs=150,
    lam=(1e-3,),
    learning_rate=1e-2,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the tanks' twin."""
    found = tmp_path_factory.mktemp("deploy")
    data = twins.make("cascaded-tanks-twin").estimation
    (found / "runs" / "tank").mkdir(parents=True)
    ensemble_of(train(data, MODEL), data, count=3).save(found / "runs/tank/model.safetensors")
    return found


@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_examples_run_in_their_order(place: int, folder: Path) -> None:
    language, text = BLOCKS[place]
    if "arm-none-eabi" in text and shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs arm-none-eabi-gcc")
    if language == "python":
        command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", text]
    elif language == "c":
        (folder / "mine.c").write_text(text)
        command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-Itank-c", "-c", "mine.c"]
    else:
        command = ["bash", "-euc", text]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
