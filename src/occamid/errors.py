"""The errors a user can cause.  Each message names what is wrong, where, and the remedy."""

from collections.abc import Iterable


class OccamidError(ValueError):
    """Base of every error raised on purpose; the command line prints it and exits with code 2."""


class DataError(OccamidError):
    """A record, or a set of records, cannot be used."""


class SettingsError(OccamidError):
    """A setting is impossible, or contradicts another setting or the data."""


def check_choice(what: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse a word that is not one of those allowed, and name them."""
    known = tuple(allowed)
    if value not in known:
        raise SettingsError(f"{what} {value!r} is unknown; choose one of {', '.join(known)}.")


class FileError(OccamidError):
    """A file or folder cannot be read or written."""
