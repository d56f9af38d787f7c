"""Run folders with made-up files, and one writer that is killed at a chosen moment."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from occamid.files import manifest
from occamid.files.folder import claim, new_folder
from tests.support.commands import listing

OPERATIONS = ("open", "os.", "shutil.", "tempfile.", "fcntl.", "test.")  # audit events, by start


def write(folder: Path, files: Mapping[str, bytes], inputs: tuple[Path, ...] = ()) -> None:
    """A run with these files, in the place of another one if need be."""
    with claim(folder, overwrite=True, inputs=inputs) as place, new_folder(place) as scratch:
        for name, content in files.items():
            with (scratch / name).open("wb") as file:
                file.write(content[: len(content) // 2])
                file.flush()
                sys.audit("test.half")
                file.write(content[len(content) // 2 :])


def holds(folder: Path) -> dict[str, bytes | None]:
    """What is in a folder besides the list of a run."""
    return {k: v for k, v in listing(folder).items() if k != manifest.LIST}


def kill_at(point: int) -> None:
    """Let this process be killed just before its operation of this number on the file system."""
    done = 0

    def count(event: str, arguments: object) -> None:
        nonlocal done
        if event.startswith(OPERATIONS) and not event.startswith("os.kill"):
            done += 1
            if done > point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def main() -> None:
    """Write a run into ``0/out``, ``1/out``, … of each folder named, killed a point later each.

    Prints the exit codes; the first process that comes to its end is the last of its folder.
    """
    files = {name: text.encode() for name, text in json.loads(sys.argv[1]).items()}
    for folder in map(Path, sys.argv[2:]):
        codes: list[int] = []
        while 0 not in codes:
            child = os.fork()  # the import of the package takes seconds, a fork none
            if child == 0:
                kill_at(len(codes))
                write(folder / str(len(codes)) / "out", files)
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(*codes, flush=True)


if __name__ == "__main__":
    main()
