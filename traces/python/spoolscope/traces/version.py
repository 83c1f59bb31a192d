"""The version of this program."""


def version() -> str:
    """Return the version of the installed package."""
    # It is slow to import, and most commands need no version.
    from importlib import metadata

    return metadata.version("spoolscope")
