"""Programs of this package do without pandas, even where it is installed."""

import sys
from typing import Any, cast


class _NoPandas:
    """Hides pandas, which pyarrow imports where it is installed, but no verb uses.

    That would take a third of the time of a short 'explain'.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse pandas, and leave everything else to the other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError("no verb but fleet uses pandas", name=fullname)


def hide_pandas() -> None:
    """Let this process run as if pandas were not installed."""
    # Its base class in importlib.abc would import all of importlib.resources, too.
    sys.meta_path.insert(0, cast("Any", _NoPandas()))
