"""Names of all calls of a capture."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spoolscope.tracers.state import State

Int = npt.NDArray[np.int64]


class Views(NamedTuple):
    """Columns of ``Resolved``."""

    path: memoryview
    path2: memoryview
    given: memoryview
    given2: memoryview
    base: memoryview
    base2: memoryview
    elsewhere: memoryview


@dataclass
class Resolved:
    """Paths of all calls, in the capture's order of calls.

    Attributes:
        paths: Absolute names by id.
        ids: The ids by name.
        path, path2: Path id per call, -1 if none.
        given, given2: Id of each path in the form in which it was given, -1 if that is the same.
        base, base2: Directory that each was relative to (enum spsc_path_base).
        comm: Name of the calling thread at that time, an index into comms.
        elsewhere: Whether a name led to another filesystem, mounted below a spool, or the call
            changed mounts there.
        unresolved: Calls on a spool whose object's name could not be found; those that returned
            before the moment of the snapshot are not counted.
        heirs: Processes that inherited files of the spool: pid, and time of the fork.
        state: State at the moment of the snapshot.
    """

    paths: list[bytes]
    ids: dict[bytes, int]
    path: npt.NDArray[np.int32]
    path2: npt.NDArray[np.int32]
    given: npt.NDArray[np.int32]
    given2: npt.NDArray[np.int32]
    base: npt.NDArray[np.int16]
    base2: npt.NDArray[np.int16]
    comm: npt.NDArray[np.int32]
    elsewhere: npt.NDArray[np.bool_]
    comms: list[bytes] = field(default_factory=list)
    unresolved: int = 0
    heirs: set[tuple[int, int]] = field(default_factory=set)
    state: State = field(init=False)

    def views(self) -> "Views":
        """Return the columns for use one by one, which is slow in numpy."""
        return Views(*(getattr(self, name).data for name in Views._fields))

    def forget(self, calls: Int) -> None:
        """Remove the names of some calls, given by number."""
        for ids in (self.path, self.path2, self.given, self.given2):
            ids[calls] = -1
        for column in (self.base, self.base2, self.elsewhere):
            column[calls] = 0
