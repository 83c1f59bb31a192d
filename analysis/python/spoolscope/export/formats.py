"""The formats that a trace can be exported to, in the order in which they are listed."""

from pathlib import Path
from typing import Protocol

from spoolscope.export.content import Content
from spoolscope.export.fio import Fio
from spoolscope.export.fio_files import FioFiles
from spoolscope.export.folded import Folded
from spoolscope.export.openmetrics import OpenMetrics
from spoolscope.export.otlp import Otlp
from spoolscope.export.perfetto import Perfetto
from spoolscope.export.speedscope import Speedscope
from spoolscope.export.tables import CsvTables, Sqlite


class Exporter(Protocol):
    """One format.

    Attributes:
        sentence: Description for the list of formats.
        opens: How to open the output, written ``{output}`` here.
        call_by_call: The output has every call, so it grows with their number.
    """

    sentence: str
    opens: str
    call_by_call: bool

    def write(self, content: Content, output: Path) -> None:
        """Write the content to a path that does not exist yet: a file, or a directory of files."""
        ...


EXPORTERS: dict[str, Exporter] = {
    "perfetto": Perfetto(),
    "speedscope": Speedscope(),
    "folded": Folded(),
    "openmetrics": OpenMetrics(),
    "csv": CsvTables(),
    "sqlite": Sqlite(),
    "otlp": Otlp(),
    "fio": Fio(),
    "fio-files": FioFiles(),
}
