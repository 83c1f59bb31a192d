"""One server on one candidate: fill, load, record, remove."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spoolscope.lab.mailserver.load import Load
from spoolscope.lab.mailserver.loading import Loading, fill
from spoolscope.lab.mailserver.outcome import Outcome
from spoolscope.lab.mailserver.packages import unpacked
from spoolscope.lab.mailserver.running import running
from spoolscope.lab.mailserver.servers import setup_of
from spoolscope.lab.mailserver.setup import Setup, elsewhere
from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.replay.candidate import Candidate
from spoolscope.replay.candidates import check
from spoolscope.replay.disks import Asked as Devices
from spoolscope.replay.disks import Disks, given
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.replay.modelled import on_model
from spoolscope.replay.mount_points import enter_private_mounts
from spoolscope.replay.places import check_places, scratch
from spoolscope.replay.targets import Target, check_space, grows_to, image_bytes, prepared
from spoolscope.replay.where import why_not_here
from spoolscope.tracers.session import Request, Summary, record
from spoolscope.traces.devices import device_model
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.phases import Progress, unseen

MESSAGE_BYTES = 14_000
"""Mean size of ``messages.message``, with headers added by servers."""
COPIES = 3
"""Copies of a message: in the queue, in a mailbox, and perhaps in another folder."""
MOST_RATE = 400.0
"""Arrivals a second for which room is reserved if the rate is not limited."""


@dataclass(frozen=True)
class Asked:
    """Parameters of the experiment.

    Attributes:
        server: Name of the server; ``form`` is its format of mailboxes, None the usual one.
        candidate: Candidate for its mail and queue.
        users: Number of users; each has ``messages`` when the load begins.
        think_s: Mean pause between the actions of a session.
        load: The load.
        work: Directory for images.
        request: Recording request without its spools; None if nothing is recorded.
        beside: A shell command that runs beside the server; the load ends after it, too.
        packages: Packages that the command needs.
        elsewhere: Mail and queue are in memory: only the command uses the candidate.
        devices: Block devices for the candidate, instead of an image.
    """

    server: str
    form: str | None
    candidate: Candidate
    users: int
    messages: int
    think_s: float
    load: Load
    work: Path
    request: Request | None = None
    beside: str | None = None
    packages: tuple[str, ...] = ()
    elsewhere: bool = False
    devices: Devices = field(default_factory=Devices)


@dataclass(frozen=True)
class Done:
    """The results; ``recorded`` is None if nothing was to be recorded."""

    asked: Asked
    form: str
    options: str
    outcome: Outcome
    recorded: Summary | None

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``lab mailserver --json`` prints."""
        asked, load = self.asked, self.asked.load
        return {
            "server": asked.server,
            "format": self.form,
            "candidate": asked.candidate.name,
            "mount_options": self.options,
            "users": asked.users,
            "messages": asked.messages,
            "rate": load.rate,
            "clients": None if load.rate else load.clients,
            "seed": load.seed,
            **self.outcome.to_json(),
            "trace": None if self.recorded is None else str(self.recorded.trace),
        }


def run(asked: Asked, progress: Progress = unseen) -> Done:
    """Run the experiment; only the recording remains.

    Args:
        asked: The parameters.
        progress: Called with the current phase.

    Raises:
        SpoolscopeError: a package or room is missing, the candidate cannot be made, the server does
            not start, the load or the recorder failed.
        KeyboardInterrupt: a signal ended it.
    """
    setup, form = _setup(asked)
    candidate = on_model(asked.candidate, "")
    _check_here(candidate)
    check(candidate, {})
    output = asked.request.output if asked.request else asked.work / "load"
    check_places([candidate], output, asked.work)
    disks, size = given(asked.devices), _image_bytes(asked)
    _check_room(candidate, asked.work, size, disks)
    root = fetched(asked, progress)
    places = [asked.work, output, *([candidate.directory] if candidate.directory else [])]
    enter_private_mounts(places)
    with ending_on_signals(), scratch(asked.work, output, disks, kind="lab") as place:
        progress(f"making {candidate.name}", None)
        with prepared(candidate, place, size, player=_play, devices=disks) as target:
            if not asked.elsewhere:
                _fill(asked, setup, root, target, progress)
            with running(setup, root, target.mount) as server:
                if asked.elsewhere:
                    fill(server, asked.users, asked.messages, asked.load.seed)
                loading = Loading(server, asked.load, asked.users, asked.think_s, asked.beside)
                outcome, recorded = _loaded(loading, asked.request, target.mount, progress)
            return Done(asked, form, target.options, outcome, recorded)


def fetched(asked: Asked, progress: Progress = unseen) -> Path:
    """Return the directory with the unpacked packages of an experiment, fetched if need be.

    Raises:
        SpoolscopeError: a package is missing or cannot be fetched.
    """
    return unpacked(_setup(asked)[0].packages, progress)


def _setup(asked: Asked) -> tuple[Setup, str]:
    """Return the server's setup, with all packages, and its format of mailboxes."""
    setup, form = setup_of(asked.server, asked.form, asked.users)
    setup = replace(setup, packages=(*setup.packages, *asked.packages))
    return elsewhere(setup) if asked.elsewhere else setup, form


def _check_room(candidate: Candidate, work: Path, size_bytes: int, disks: Disks | None) -> None:
    if disks is not None:
        disks.check_candidates([candidate])
        room = max(size_bytes, candidate.smallest)
        disks.check_room(room, "this load", "fewer --users, --messages or --seconds")
    elif candidate.directory is None:
        check_space(work, grows_to(candidate, size_bytes, None))


def _check_here(candidate: Candidate) -> None:
    """Make sure that this kernel has the candidate."""
    if candidate.kernel:
        plain, _, series = candidate.name.rpartition("@")
        raise SpoolscopeError(
            f"{candidate.name} names results of replays on another kernel",
            remedy=f"use --on {plain} --vm {series}",
            exit_code=USAGE,
        )
    if candidate.directory is None and (why := why_not_here(candidate)):
        raise SpoolscopeError(
            f"candidate {candidate.name} does not run here: {why.reason}",
            remedy=why.remedy,
        )


def _fill(asked: Asked, setup: Setup, root: Path, target: Target, progress: Progress) -> None:
    """Let the server deliver the initial messages, then empty its caches."""
    progress(f"delivering {asked.users * asked.messages:,} messages", None)
    with running(setup, root, target.mount) as server:
        fill(server, asked.users, asked.messages, asked.load.seed)
    target.cool()


def _loaded(
    loading: Loading, request: Request | None, mount: Path, progress: Progress
) -> tuple[Outcome, Summary | None]:
    if request is None:
        progress("loading", None)
        return loading.run(), None
    try:
        summary = record(replace(request, spools=[mount]), progress, over=loading.over)
        if summary.signalled:
            raise KeyboardInterrupt
        return loading.result(), summary
    finally:
        loading.kill()


def _image_bytes(asked: Asked) -> int:
    rate = MOST_RATE if asked.load.rate is None else asked.load.rate
    count = asked.users * asked.messages + round(rate * asked.load.seconds)
    return image_bytes(count * MESSAGE_BYTES * COPIES, 4 * count + 100 * asked.users)


def _play(image: Path, place: Path, model: str) -> SlowDisk:
    return SlowDisk(image, place, device_model(model))
