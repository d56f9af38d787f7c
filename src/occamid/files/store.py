"""A store of finished work: entries that are written once, in a folder or at an address of fsspec.

Every entry begins with a digest of the rest, so that one that is torn or was changed reads as
absent, whatever the file system does.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from occamid.errors import FileError, SettingsError
from occamid.files.atomic import replace_file

ENDING = ".unit"  # of every entry's name
MARK = b"occamid unit 1\n"  # how one begins; the digest follows
DIGEST = 32  # bytes of a SHA-256
LOCAL = ("file://", "local://")  # addresses of folders


@dataclass(frozen=True)
class Store:
    """Finished work by its keys, which tell everything that determines it.

    Attributes:
        address: a folder, or an address such as ``s3://bucket/folder``.
        reads: whether what is there already counts; else it is left as it is, and not used.
    """

    address: str
    reads: bool = True

    @classmethod
    def of(cls, address: str | Path, *, reads: bool = True) -> Store:
        """A store that other processes find, too: a folder has its full name."""
        told = str(address)
        start = next((start for start in LOCAL if told.startswith(start)), "")
        if start or "://" not in told:
            told = os.path.abspath(told.removeprefix(start))
        return cls(told, reads)

    @property
    def remote(self) -> bool:
        """Whether it is reached by fsspec."""
        return "://" in self.address

    def check(self, *taken: Path) -> None:
        """Refuse a store that cannot be used or is in a folder of the run's, before any work.

        Nothing is written.
        """
        if not self.remote:
            place = Path(os.path.realpath(self.address))
            if os.path.lexists(self.address) and not place.is_dir():
                raise FileError(f"{self.address} is no folder; name another `store`.")
            for folder in taken:
                if Path(os.path.realpath(folder)) in (place, *place.parents):
                    raise FileError(
                        f"{self.address} is in the folder {folder} itself; name another `store`."
                    )
            there = next(folder for folder in (place, *place.parents) if folder.exists())
            if not os.access(there, os.W_OK):
                raise FileError(f"cannot write to {self.address}; name another `store`.")
        self._read(sha256(b"").hexdigest())

    def get(self, key: str) -> bytes | None:
        """What was put there under this key; None where there is nothing, or nothing whole."""
        found = self._read(key) if self.reads else None
        return None if found is None else _content(found)

    def put(self, key: str, content: bytes) -> None:
        """Keep an entry; one that is there and whole stays as it is."""
        found = self._read(key)
        if found is None or _content(found) is None:
            self._write(key, MARK + sha256(content).digest() + content)

    def _read(self, key: str) -> bytes | None:
        if not self.remote:
            try:
                return self._path(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                raise FileError(f"cannot read {self._path(key)}: {error.strerror}.") from None
        system, root = _system(self.address)
        try:
            found: bytes = system.cat_file(f"{root}/{key}{ENDING}")
        except FileNotFoundError:
            return None
        except Exception as error:  # each protocol has errors of its own
            raise FileError(f"cannot read from {self.address}: {_said(error)}.") from None
        return found

    def _write(self, key: str, content: bytes) -> None:
        if not self.remote:
            folder = Path(self.address)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(f"cannot make {folder}: {error.strerror}.") from None
            replace_file(self._path(key), content)
            return
        system, root = _system(self.address)
        try:
            system.makedirs(root, exist_ok=True)
            system.pipe_file(f"{root}/{key}{ENDING}", content)
        except Exception as error:
            raise FileError(f"cannot write to {self.address}: {_said(error)}.") from None

    def _path(self, key: str) -> Path:
        return Path(self.address) / f"{key}{ENDING}"


def _content(entry: bytes) -> bytes | None:
    """What stands in an entry, if all of it is there as it was written."""
    start = len(MARK) + DIGEST
    content = entry[start:]
    return content if entry[:start] == MARK + sha256(content).digest() else None


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address and the place in it, or what to install."""
    try:
        library = importlib.import_module("fsspec.core")
    except ImportError:
        raise SettingsError(
            f"the `store` {address} needs the package fsspec, which is not installed: "
            'pip install "occamid[cluster]"; or name a folder.'
        ) from None
    try:
        system, root = library.url_to_fs(address)
    except ImportError as error:  # fsspec names the package of the protocol
        raise SettingsError(
            f"the `store` {address} needs another package ({_said(error)}); install it here and "
            "for every worker, or name a folder."
        ) from None
    except Exception as error:
        raise SettingsError(
            f"the `store` {address} cannot be opened ({_said(error)}); name a folder, or an "
            "address of fsspec such as s3://bucket/folder."
        ) from None
    return system, root.rstrip("/")


def _said(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines and lines[0] else type(error).__name__
