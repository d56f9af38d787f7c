"""Names that try to break out of files, folders that are not ours, packages that are missing."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from pathlib import Path

import fmpy
import pytest
from fmpy.validation import validate_fmu
from hypothesis import given, settings
from hypothesis import strategies as st

from occamid.cli import _run
from occamid.errors import FileError, SettingsError
from occamid.export import c, export, fmu, onnx, plainjson
from occamid.export import st as plc
from occamid.export.description import describe
from occamid.export.names import identifier, identifiers, shown
from occamid.files.folder import claim, new_folder
from tests.support.exports import compile_c, random_ensemble, random_model
from tests.support.exports import write as write_files
from tests.support.structured_text import load

NASTY = [
    'a" ; system("x"); "',
    "*/ int evil(void) { return 1; } /*",
    "*) END_FUNCTION_BLOCK (*",
    "{{ 7 * 7 }} {% raw %}",
    "\\\nint x;",
    "??/\n",
    "if",
    "int",
    "END_VAR",
    "Übergröße °C ✓",
    "\u202eright to left",
    "x" * 300,
    "</fmiModelDescription><!--",
    "]]>&lt;&#0;",
    "\x00\x07\x1b[31m",
    "%s%n",
    "time",
    "use_measured",
    " ",
    "1",
    "\ud800",
    "'; DROP TABLE",
    "$(touch evil)",
]
names = st.lists(
    st.one_of(st.sampled_from(NASTY), st.text(max_size=30)), min_size=4, max_size=4, unique=True
)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(names=names, title=st.one_of(st.sampled_from(NASTY), st.text(max_size=20)))
def test_no_name_breaks_or_enters_a_file(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], title: str
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    plain = describe(random_model(1, "mlp", 2, 2, (2,), lags=1, names=("a", "b", "c", "d")))
    d = describe(random_model(1, "mlp", 2, 2, (2,), lags=1, names=tuple(names)))
    code = c.files(d, title, jacobian=True)
    word = identifier(title)
    write_files(code, folder)
    compile_c(folder, f"{word}.c", f"{word}_test.c")
    usual = c.files(plain, title, jacobian=True)
    assert code[f"{word}.c"] == usual[f"{word}.c"]  # no name is in the source at all
    assert _bare(code[f"{word}.h"]) == _bare(usual[f"{word}.h"])
    text = plc.files(d, title)[f"{word}.st"]
    assert text.isascii()
    load(text)
    for file in fmu.files(d, title, sources_only=True).items():
        path = folder / file[0]
        path.write_bytes(file[1])
        assert validate_fmu(str(path)) == []
        found = fmpy.read_model_description(str(path))
        assert len({v.name for v in found.modelVariables}) == len(found.modelVariables)
    kept = json.loads(plainjson.files(d, title)["model.json"])
    assert [i["name"] for i in kept["inputs"]] == names[:2]


def _bare(header: str) -> str:
    """A header without comments and without the words made from names."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    return re.sub(r"_(in|out)_\w+", "_word", header)


@pytest.mark.parametrize("name", NASTY)
def test_onnx_keeps_any_name(name: str) -> None:
    d = describe(random_model(1, "mlp", 1, 1, (2,), lags=1, names=(name, "other")))
    assert onnx.files(d, name)["step.onnx"]


def test_identifiers_differ_even_without_case() -> None:
    found = identifiers(["Pump", "pump", "PUMP", "", "äöü", "__", "if"], "in")
    assert len({word.lower() for word in found}) == 7
    assert all(re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", word) for word in found)
    assert shown("*/ (* \" ' \\ \n {}").isascii()
    assert not set(shown("".join(NASTY))) & set("*/\"'\\\n{}%$?&;")


MODEL = random_ensemble(0, 2, lags=1, hidden=(2,))


def test_a_folder_of_the_user_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(FileError, match="no run of occamid"):
        export(MODEL, "json", mine)
    assert (mine / "thesis.txt").read_text() == "years of work"
    ours = tmp_path / "ours"
    export(MODEL, "json", ours)
    (ours / "notes.txt").write_text("mine")
    export(MODEL, "c", ours)  # an untouched export is replaced, what lies beside it stays
    assert not (ours / "model.json").exists()
    assert (ours / "notes.txt").read_text() == "mine"
    (ours / "model.c").write_text("/* edited */")
    with pytest.raises(FileError, match=r"model\.c was changed"):
        export(MODEL, "json", ours)
    run = tmp_path / "run"
    with claim(run) as place, new_folder(place) as scratch:
        (scratch / "model.safetensors").write_text("a run")
    with pytest.raises(FileError, match="is a run of occamid"):
        export(MODEL, "json", run)
    assert (run / "model.safetensors").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    export(MODEL, "json", empty)


def test_unknown_formats_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="choose one of c, onnx"):
        export(MODEL, "cobol", tmp_path / "out")
    with pytest.raises(SettingsError, match="jacobian; it is for c"):
        export(MODEL, "onnx", tmp_path / "out", jacobian=True)
    with pytest.raises(SettingsError, match="choose one of double, float"):
        export(MODEL, "c", tmp_path / "out", precision="half")
    assert not (tmp_path / "out").exists()


def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    MODEL.save(path)
    return path


@pytest.mark.parametrize(("format", "package"), [("onnx", "onnx"), ("casadi", "casadi")])
def test_missing_packages_are_one_line_and_code_2(
    format: str,
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = saved(tmp_path)
    real = importlib.import_module

    def without(name: str, *rest: str) -> object:
        if name == package:
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    assert _run(["export", str(path), "--format", format]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"needs the package {package}" in told


def test_a_missing_compiler_is_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _run(["export", str(path), "--format", "fmu"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "C compiler" in told
    assert _run(["export", str(path), "--format", "fmu", "--sources-only"]) == 0
    assert (tmp_path / "export-fmu" / "model-fmi3.fmu").exists()


def test_the_command_writes_what_the_function_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path)
    out = tmp_path / "c"
    arguments = ["--format", "c", "--out", str(out), "--name", "tank", "--jacobian", "--json"]
    assert _run(["export", str(path), *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [Path(f).name for f in told["files"]] == ["tank.h", "tank.c", "tank_test.c", "README.md"]
    program = compile_c(out, "tank.c", "tank_test.c")
    assert subprocess.run([program], check=False).returncode == 0
    assert _run(["inspect", str(path), "--linear"]) == 0
    assert "stable there" in capsys.readouterr().out
