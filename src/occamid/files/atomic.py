"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from occamid.errors import FileError


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the target and move into place, so that a reader never sees half a file."""
    try:
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(scratch).chmod(0o644)
        os.replace(scratch, path)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}.") from None
    finally:
        Path(scratch).unlink(missing_ok=True)
