"""Data flows one way, and every file and function stays small: what a reader may rely on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from occamid.cli import as_flags
from occamid.cli.plugins import OWN, own_command

SOURCE = Path(__file__).parent.parent / "src" / "occamid"
PACKAGES = [
    *("errors", "data", "reading", "files", "networks", "assessment", "training", "bands"),
    *("identification", "reporting", "export", "fleets", "cli", "app"),
]
ENTRIES = 15  # at the root
LONGEST = 60  # lines of a function
MOST_PARAMETERS = 10


def modules() -> dict[str, ast.Module]:
    """Every module by its name inside occamid; a package is called by its own name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


MODULES = modules()
LIBRARY = {name: tree for name, tree in MODULES.items() if name.split(".")[0] != "cli"}


def imports(name: str, tree: ast.Module, known: set[str]) -> set[str]:
    """Modules of occamid that a module names in any import, wherever it stands."""
    found: set[str] = set()
    package = name if any(m.startswith(f"{name}.") for m in known) else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "occamid"}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["occamid", *package.split(".")][: -(node.level - 1) or None]
                base = ".".join(filter(None, [*above, base]))
            if base.split(".")[0] == "occamid":
                found |= {f"{base}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            first = node.args[0] if node.args else None
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                found |= {str(first.value)} if str(first.value).startswith("occamid") else set()
    return {_module(f.removeprefix("occamid").lstrip("."), known) for f in found} - {""}


def _module(dotted: str, known: set[str]) -> str:
    """The module that a dotted name is, or is a name in."""
    while dotted and dotted not in known:
        dotted = dotted.rpartition(".")[0]
    return dotted


def functions(name: str, tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function and method with its full name, those inside others too."""

    def inside(prefix: str, body: ast.AST) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in ast.iter_child_nodes(body):
            here = prefix
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                here = f"{prefix}.{node.name}"
            if isinstance(node, ast.FunctionDef):
                yield here, node
            yield from inside(here, node)

    return inside(name, tree)


def texts(tree: ast.Module) -> Iterator[str]:
    """Every string that is no docstring; the parts of an f-string are joined by {}."""
    said = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(v) for v in node.values}
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in said | inner
        ):
            yield node.value


# --- one way ------------------------------------------------------------------------------------


def test_every_module_is_in_a_package() -> None:
    assert {name.split(".")[0] for name in MODULES if name} <= set(PACKAGES)


def upwards(trees: dict[str, ast.Module]) -> list[str]:
    """Imports of a later package."""
    place = {package: k for k, package in enumerate(PACKAGES)}
    return [
        f"{name} imports {other}"
        for name, tree in trees.items()
        if name  # the lazy table of occamid itself names everything
        for other in sorted(imports(name, tree, set(trees)))
        if place[other.split(".")[0]] > place[name.split(".")[0]]
    ]


def cycle(trees: dict[str, ast.Module]) -> list[str]:
    """Modules that import each other in a circle, if any."""
    graph = {name: imports(name, tree, set(trees)) - {name} for name, tree in trees.items() if name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_import_only_their_own_and_earlier_packages() -> None:
    assert upwards(MODULES) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycle(MODULES) == []


@pytest.mark.parametrize(
    "form",
    [
        "import occamid.cli.use",
        "import occamid.cli.use as x",
        "from occamid import cli",
        "from occamid.cli import use",
        "from occamid.cli.use import simulate",
        "from ..cli import use",
        "from ..cli.use import simulate",
        "def f():\n    from occamid.cli import use",
        "if TYPE_CHECKING:\n    from occamid.cli import use",
        "try:\n    import occamid.cli\nexcept ImportError:\n    pass",
        "import_module('occamid.cli.use')",
        "importlib.import_module('occamid.cli')",
    ],
)
def test_every_form_of_an_import_is_seen(form: str) -> None:
    """Guards the tests above."""
    sources = {"data": "", "data.a": form, "cli": "", "cli.use": ""}
    trees = {name: ast.parse(text) for name, text in sources.items()}
    (wrong,) = upwards(trees)
    assert wrong in ("data.a imports cli", "data.a imports cli.use")


def test_circles_are_seen() -> None:
    """Guards the test above: a circle of three, one of them a relative import."""
    texts = {"data": "", "data.a": "from .b import x", "data.b": "import occamid.data.c"}
    trees = {n: ast.parse(t) for n, t in (texts | {"data.c": "from occamid.data import a"}).items()}
    assert set(cycle(trees)) == {"data.a", "data.b", "data.c"}
    assert cycle({n: t for n, t in trees.items() if n != "data.c"}) == []


# --- small --------------------------------------------------------------------------------------


def test_the_root_can_be_taken_in_at_a_glance() -> None:
    entries = [p.name for p in SOURCE.iterdir() if p.name != "__pycache__"]
    assert len(entries) <= ENTRIES, sorted(entries)


def test_functions_are_short() -> None:
    long = [
        f"{where}: {node.end_lineno - node.lineno + 1} lines"
        for name, tree in LIBRARY.items()
        for where, node in functions(name, tree)
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 >= LONGEST
    ]
    assert long == []


def test_functions_have_few_parameters() -> None:
    many = {
        where
        for name, tree in LIBRARY.items()
        for where, node in functions(name, tree)
        if len(parameters(node)) > MOST_PARAMETERS
    }
    assert many == set()


def parameters(node: ast.FunctionDef) -> list[str]:
    """What a caller can give."""
    a = node.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


# --- what only the command line does ------------------------------------------------------------


def test_the_library_leaves_jax_config_alone_and_does_not_print() -> None:
    wrong = [
        f"{name} calls {ast.unparse(node.func)}"
        for name, tree in LIBRARY.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("config.update", "print", "sys.stdout.write"))
    ]
    assert wrong == []


def test_the_library_writes_no_flags() -> None:
    wrong = [
        f"{name}: {text}"
        for name, tree in LIBRARY.items()
        for text in texts(tree)
        if re.search(r"(?<![\w-])--[a-z{]", text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("name it with `time`.", "name it with --time."),
        ("`inputs` takes names", "--input takes names"),
        ("named with `outputs` or", "named with --output or"),
        ("give `sampling_time`.", "give --sampling-time."),
        ('use `gaps="split"`.', "use --gaps split."),
        ("`resample` or `resample=SECONDS`", "--resample or --resample-to SECONDS"),
        ("fewer with `input_lags` and `output_lags`.", "fewer with --lags."),
        ("fewer with `input_lags`.", "fewer with --input-lags."),
        ("a `b c` and a ` mark", "a `b c` and a ` mark"),  # not a parameter
    ],
)
def test_parameters_become_flags(said: str, shown: str) -> None:
    assert as_flags(said) == shown


def test_every_parameter_in_a_message_is_a_flag() -> None:
    """What the library calls `so` can be typed as --so."""
    known = {
        flag for name in OWN for parameter in own_command(name).params for flag in parameter.opts
    }
    found = {
        as_flags(word).split()[0]
        for tree in LIBRARY.values()
        for text in texts(tree)
        for word in re.findall(r"(?<!`)`[^`{}]+`(?!`)", text)
    }
    assert len(found) > 8
    assert found <= known
