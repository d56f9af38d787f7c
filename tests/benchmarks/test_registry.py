"""The registry of real records: search order, checksums, a local server instead of the network."""

import threading
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from occamid import DataError, FileError
from occamid_benchmarks import registry
from tests.support.real import real_data


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no folder named by the environment."""
    monkeypatch.setattr(registry, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fabricated hairdryer file that the registry takes for the real one."""
    folder = tmp_path / "site" / "DRY" / "DRY_Data"
    folder.mkdir(parents=True)
    ramp = np.arange(8.0)
    scipy.io.savemat(folder / "dry.mat", {"ue": ramp, "ye": ramp, "uv": -ramp, "yv": -ramp})
    entry = registry.BENCHMARKS["hairdryer"]
    changed = entry.__class__(
        **{
            **{f: getattr(entry, f) for f in entry.__dataclass_fields__},
            "sha256": sha256((folder / "dry.mat").read_bytes()).hexdigest(),
        }
    )
    monkeypatch.setitem(registry.BENCHMARKS, "hairdryer", changed)
    return folder / "dry.mat"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A server on this machine that stands for the authors' repository."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "site"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_is_checked_and_cached(cache: Path, made: Path, site: str) -> None:
    found = registry.path("hairdryer", site)
    assert found == cache / "hairdryer.mat"
    made.unlink()  # the second time the cache answers
    assert registry.path("hairdryer", site) == found
    data = registry.load("hairdryer")
    np.testing.assert_array_equal(data.test[0].y[:, 0], -np.arange(8.0))
    assert data.test[0].sampling_time == 0.08


@pytest.mark.parametrize("damage", [b"<html>rate limited</html>", b""])
def test_a_page_or_a_cut_file_is_refused_and_not_kept(
    cache: Path, made: Path, site: str, damage: bytes
) -> None:
    made.write_bytes(damage or made.read_bytes()[:50])
    with pytest.raises(FileError) as error:
        registry.path("hairdryer", site)
    assert str(error.value) == (
        "what came back for hairdryer is not the file it should be (an error page, or cut short); "
        "nothing was kept. Try again, or put hairdryer.mat into a folder and name it in "
        "OCCAMID_DATA."
    )
    assert not list(cache.glob("*"))


def test_no_network(cache: Path, made: Path) -> None:
    with pytest.raises(FileError, match=r"cannot download hairdryer: .* name it in OCCAMID_DATA\."):
        registry.path("hairdryer", "http://127.0.0.1:9/")


def test_the_named_folder_comes_first_and_is_checked(
    cache: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    own = folder / "hairdryer.mat"
    own.write_bytes(made.read_bytes())
    monkeypatch.setenv(registry.VARIABLE, str(folder))
    assert registry.path("hairdryer", "http://127.0.0.1:9/") == own
    own.write_bytes(b"something else")
    with pytest.raises(FileError, match="is not the hairdryer record it should be"):
        registry.path("hairdryer", "http://127.0.0.1:9/")


def test_an_unknown_name() -> None:
    with pytest.raises(DataError, match="no benchmark is called 'dryer'; there are hairdryer, "):
        registry.path("dryer")


@pytest.mark.parametrize(
    ("name", "estimation", "test"),
    [
        ("hairdryer", [300], [700]),
        ("heat-exchanger", [3000], [2000]),
        ("glass-tube", [500], [175]),
        ("cascaded-tanks", [1024], [1024]),
        ("coupled-drives", [300, 300], [200, 200]),
    ],
)
def test_the_papers_splits(name: str, estimation: list[int], test: list[int]) -> None:
    data = real_data(name)
    assert [len(r) for r in data.estimation] == estimation
    assert [len(r) for r in data.test] == test
    assert data.n_init is None


def test_official_splits() -> None:
    real_data("coupled-drives")
    drives = registry.load("coupled-drives", "official")
    assert ([len(r) for r in drives.estimation], [len(r) for r in drives.test]) == (
        [400, 400],
        [100, 100],
    )
    assert drives.n_init == 10
    assert registry.load("cascaded-tanks", "official").n_init == 50
