"""The errors a user can cause.  Each message names what is wrong, where, and the remedy."""


class OccamidError(ValueError):
    """Base of every error raised on purpose; the command line prints it and exits with code 2."""


class DataError(OccamidError):
    """A record, or a set of records, cannot be used."""


class SettingsError(OccamidError):
    """A setting is impossible, or contradicts another setting or the data."""


class FileError(OccamidError):
    """A file or folder cannot be read or written."""
