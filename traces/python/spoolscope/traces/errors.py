"""The error that is shown to users, and exit codes."""

from collections.abc import Sequence

ERROR = 1
USAGE = 2
INCOMPLETE = 3
FAILED = 4
"""A condition of ``compare --fail-if`` is true."""
UNDECIDED = 5
"""The intervals do not decide whether it is true."""


class SpoolscopeError(Exception):
    """An error that the user can mend: one line on what is wrong, and one on what to do.

    Args:
        message: What is wrong, naming the file, option or program.
        remedy: The flag or command that mends it.
        exit_code: 1 for an error, 2 for wrong usage.
        said: Last lines of another program that failed, printed above the error.
    """

    def __init__(
        self, message: str, *, remedy: str, exit_code: int = ERROR, said: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.exit_code = exit_code
        self.said = tuple(said)


def usage_error(message: str, remedy: str) -> SpoolscopeError:
    """Return the error of wrong usage."""
    return SpoolscopeError(message, remedy=remedy, exit_code=USAGE)
