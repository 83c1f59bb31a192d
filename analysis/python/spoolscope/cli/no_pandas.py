"""Programs of this package do without pandas, even where it is installed."""

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    """Hides pandas, which pyarrow imports where it is installed, but no verb uses.

    That would take a third of the time of a short 'explain'.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse pandas, and leave everything else to the other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError("no verb but fleet uses pandas", name=fullname)


def hide_pandas() -> None:
    """Let this process run as if pandas were not installed."""
    sys.meta_path.insert(0, _NoPandas())
