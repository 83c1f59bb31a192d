"""Classes for tables and columns of a trace, and the columns that many tables share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

I16, I32, I64, F64 = pa.int16(), pa.int32(), pa.int64(), pa.float64()
STR = pa.string()
SYMBOL = pa.dictionary(pa.int32(), pa.string())
BOOL = pa.bool_()
PATH, COMM, PROGRAM, GROUP = "path", "comm", "program", "group"
PRIVATE = (PATH, COMM, PROGRAM, GROUP)


@dataclass(frozen=True)
class Column:
    """One column: Parquet type, unit ("" if it has none) and meaning.

    ``private`` is the kind of name that its text has: PATH, COMM, PROGRAM or GROUP; "" if it
    cannot name a person or a host but is one of few fixed words.
    """

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    nullable: bool = False
    private: str = ""


@dataclass(frozen=True)
class Table:
    """One table of a trace; ``sorted_by`` names the column its rows are sorted by."""

    name: str
    row: str
    columns: tuple[Column, ...]
    sorted_by: str = ""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])


TS = Column("ts_ns", I64, "ns", "Start, since the epoch (CLOCK_REALTIME at start of recording).")
PID = Column("pid", I32, "", "Process id.")
TID = Column("tid", I32, "", "Thread id.")
NAME = Column("comm", SYMBOL, "", "Name of the thread at that time.", private=COMM)
CALL_SEQ = Column(
    "seq", I64, "", "seq of the thread's call this belongs to; null outside calls.", nullable=True
)


def symbols(
    numbers: npt.NDArray[np.integer],
    names: Sequence[str],
    mask: npt.NDArray[np.bool_] | None = None,
) -> pa.DictionaryArray:
    """Return names by number as a column of texts that repeat.

    Args:
        numbers: Numbers of names.
        names: Names, which may repeat.
        mask: Rows that are null.

    Raises:
        IndexError: a number has no name.
    """
    texts = {text: i for i, text in enumerate(dict.fromkeys(names))}
    at = np.array([texts[name] for name in names], np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(at[numbers], mask=mask), pa.array(texts, pa.string())
    )
