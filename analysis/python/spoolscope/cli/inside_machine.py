"""The part of a replay inside a machine: the next block of runs, whose progress it prints.

An emulator makes each import some ten times as long: modules that not every replay needs are
imported where they are needed.
"""

import base64
import pickle
import sys
from collections.abc import Callable
from typing import Any

from spoolscope.cli.no_pandas import hide_pandas


def command(replay: Callable[..., Any], *, resume: bool, record: bool) -> list[str]:
    """Return the words that make the next block of runs in a machine.

    Args:
        replay: ``replay.run.replay`` with all arguments except those that a machine provides.
        resume: The replay has begun, and its directory has the rows.
        record: Record the replays.
    """
    asked = base64.b64encode(pickle.dumps((replay, resume, record))).decode()
    return [sys.executable, "-m", "spoolscope.cli.inside_machine", asked]


def _make(asked: str) -> int:
    # The function that is asked for needs pyarrow, which would import pandas.
    hide_pandas()
    from spoolscope.cli.heard import Telling
    from spoolscope.lab.vm.running import SCRATCH
    from spoolscope.traces.errors import ERROR, SpoolscopeError

    replay, resume, record = pickle.loads(base64.b64decode(asked))
    telling = Telling()
    try:
        replay(
            recorder=_recorder() if record else None,
            progress=telling.at,
            timing=telling,
            work=SCRATCH,
            resume=resume,
            one_block=True,
        )
    except SpoolscopeError as error:
        telling.error(error)
        return ERROR
    return 0


def _recorder() -> Any:
    from spoolscope.cli.replay_recorder import replay_recorder

    return replay_recorder()


if __name__ == "__main__":
    sys.exit(_make(sys.argv[1]))
