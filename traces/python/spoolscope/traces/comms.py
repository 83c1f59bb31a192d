"""Names of threads, programs and control groups in a trace, hidden where necessary."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spoolscope.traces.columns import symbols
from spoolscope.traces.concealed import Concealed
from spoolscope.traces.known_programs import is_kernel_thread
from spoolscope.traces.pseudonym import HIDDEN, Pseudonymiser


class Comms:
    """Hides names of programs that would reveal a private name, or all names of programs.

    Args:
        names: Makes pseudonyms; None keeps all names.
        concealed: Decides which names would.
        hide_all: Hide all names except those of the kernel's own threads.

    Attributes:
        hidden: Names that were hidden so far, and their pseudonyms.
    """

    def __init__(
        self,
        names: Pseudonymiser | None,
        concealed: Concealed | None = None,
        *,
        hide_all: bool = False,
    ) -> None:
        self._names, self._concealed = names, concealed or Concealed()
        self._hide_all = hide_all
        self._known: dict[bytes, str] = {}
        self.hidden: dict[bytes, bytes] = {}

    def text(self, comm: bytes) -> str:
        """Return a name as text; bytes outside UTF-8 become replacement characters."""
        if comm not in self._known:
            self._known[comm] = self._shown(comm, self._concealed.hides)
        return self._known[comm]

    def unit(self, name: bytes) -> str:
        """Return the name of a unit or control group as text."""
        return self._shown(name, self._concealed.hides_unit)

    def hide(self, name: bytes) -> str:
        """Return the pseudonym of a name; it is always hidden."""
        return self._shown(name, lambda _name: True)

    def column(
        self, comms: npt.NDArray[np.bytes_], mask: npt.NDArray[np.bool_] | None = None
    ) -> pa.DictionaryArray:
        """Return fixed-size names as a column of texts, null where masked."""
        # As binary texts of any length, some millions would become several chunks.
        fixed = pa.binary(comms.dtype.itemsize)
        data = pa.py_buffer(np.ascontiguousarray(comms))
        names = pa.Array.from_buffers(fixed, len(comms), [None, data]).dictionary_encode()
        texts = [self.text(comm.rstrip(b"\0")) for comm in names.dictionary.to_pylist()]
        return symbols(names.indices.to_numpy(), texts, mask)

    def _shown(self, name: bytes, hides: Callable[[bytes], bool]) -> str:
        if name and self._names is not None and (self._always(name) or hides(name)):
            self.hidden[name] = self._names.program(name)
            return self.hidden[name].decode()
        return name.decode(errors="replace")

    def _always(self, name: bytes) -> bool:
        return name.startswith(HIDDEN) or (self._hide_all and not is_kernel_thread(name))
