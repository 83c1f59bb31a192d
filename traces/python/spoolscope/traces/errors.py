"""The one error users see."""

ERROR = 1
USAGE = 2
INCOMPLETE = 3
FAILED = 4
"""What ``compare --fail-if`` names is so."""
UNDECIDED = 5
"""The intervals do not tell whether it is so."""


class SpoolscopeError(Exception):
    """Something the user can mend: one line of what is wrong and one of what to do.

    Args:
        message: What is wrong, naming the file, option or program.
        remedy: The flag or command that mends it.
        exit_code: 1 for an error, 2 for wrong usage.
    """

    def __init__(self, message: str, *, remedy: str, exit_code: int = ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.exit_code = exit_code
