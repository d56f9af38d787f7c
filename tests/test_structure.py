"""Data flows one way: a module imports only from earlier stages."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "occamid"
STAGES = [
    "errors",
    "atomic",
    "data.record",
    "data.columns",
    "data.text",
    "data.matfile",
    "data.arrays",
    "data.tables",
    "data.timing",
    "data.choose",
    "data.experiments",
    "data.files",
    "data.scaling",
    "data.twins",
    "data.benchmarks",
    "regressors",
    "networks.base",
    "networks.groups",
    "networks.cells",
    "networks.mlp",
    "networks.recurrent",
    "networks",
    "settings",
    "simulate",
    "metrics",
    "residuals",
    "sparse.evidence",
    "sparse.curvature",
    "sparse.train",
    "sparse",
    "model",
    "result",
    "checkpoint",
    "driver",
    "posterior",
    "batch",
    "predictive",
    "linearised",
    "startup",
    "ensemble",
    "refine",
    "families",
    "auto",
    "calibration",
    "modelfile",
    "store",
    "figures",
    "report.series",
    "report.verdict",
    "report.structure",
    "report.content",
    "report.plots",
    "report.page",
    "report.static",
    "report",
    "estimator",
    "job",
    "runs",
    "baselines.state_space",
    "baselines.linear",
    "baselines.process",
    "baselines.gp",
    "baselines",
    "benchmark",
    "benchmark.rows",
    "benchmark.run",
    "benchmark.versus",
    "benchmark.honest",
    "benchmark.reading",
    "benchmark.table",
    "cli.shared",
    "cli.train",
    "cli.use",
    "cli.records",
    "cli.bench",
    "cli",
]


def modules() -> dict[str, Path]:
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(p for p in parts if p != "__init__")] = path
    return found


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("occamid"):
            base = (node.module or "").removeprefix("occamid").lstrip(".")
            inner = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
            found |= {name if name in modules() else base for name in inner}
    return found


def test_every_module_has_a_stage() -> None:
    assert set(modules()) - {"", "data"} == set(STAGES)


def test_modules_import_only_earlier_stages() -> None:
    place = {name: k for k, name in enumerate(STAGES)}
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        if name in place
        for other in imports(path)
        if other not in place or place[other] >= place[name]
    ]
    assert wrong == []


def test_the_library_leaves_jax_config_alone_and_does_not_print() -> None:
    for name, path in modules().items():
        if name.split(".")[0] == "cli":
            continue
        text = path.read_text()
        assert "jax.config.update" not in text, name
        assert "print(" not in text, name
