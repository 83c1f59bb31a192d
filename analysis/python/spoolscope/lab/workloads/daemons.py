"""C2007: real daemons under clients with the parameters of postal and rabid."""

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spoolscope.lab.mailserver.loading import fill
from spoolscope.lab.mailserver.messages import DOMAIN
from spoolscope.lab.mailserver.packages import unpacked
from spoolscope.lab.mailserver.running import running
from spoolscope.lab.mailserver.servers import setup_of
from spoolscope.lab.mailserver.setup import PASSWORD, Setup
from spoolscope.lab.workloads.bench import Bench
from spoolscope.lab.workloads.native import command
from spoolscope.lab.workloads.needs import Needs
from spoolscope.traces.phases import Progress, unseen

USERS = 500
WARM_UP_S, MEASURED_S = 600.0, 1800.0
LEAST_S = 3.0
"""Least duration at any scale, as connections take time."""

# A mail is delivered to a Maildir, after the queue; this is the highest rate of any daemon.
_MAILS_A_SECOND, _MAIL_BYTES = 400, 4096
_DAEMONS_BYTES, _NAMES_A_USER = 64 << 20, 20


def needs(_name: str, scale: float) -> Needs:
    """Return room for the largest possible number of mails, none of them fetched."""
    mails = round((_warm_up_s(scale) + _measured_s(scale)) * _MAILS_A_SECOND)
    return Needs(mails * _MAIL_BYTES + _DAEMONS_BYTES, mails + USERS * _NAMES_A_USER)


def fetched(server: str, form: str, progress: Progress = unseen) -> tuple[Setup, Path]:
    """Return the setup of Postfix with a server, and its unpacked packages, fetched if need be.

    Args:
        server: Name of the server.
        form: Its format of mailboxes; empty is its usual one.
        progress: Called when something is fetched.

    Raises:
        SpoolscopeError: a package is missing or cannot be fetched.
    """
    setup, _ = setup_of(server, form or None, USERS)
    return setup, unpacked(setup.packages, progress)


def postfix_with(server: str) -> Callable[[Bench], None]:
    """Return the load of Postfix with a POP3 server."""

    def run(bench: Bench) -> None:
        setup, root = fetched(server, bench.format, bench.show)
        mode = stat.S_IMODE(bench.place.stat().st_mode)
        bench.show(f"starting Postfix and {server}", None)
        with running(setup, root, bench.place) as daemons:
            fill(daemons, USERS, 1, bench.seed)
            report = bench.work / "load.json"
            words = command(
                *("clients", "--smtp", str(setup.ports["smtp"])),
                *("--pop3", str(setup.ports["pop3"]), "--users", str(USERS)),
                *("--password", PASSWORD, "--login", setup.login, "--domain", DOMAIN),
                *("--warm-up", f"{_warm_up_s(bench.scale):.3f}"),
                *("--seconds", f"{_measured_s(bench.scale):.3f}", "--seed", str(bench.seed)),
                *("--report", str(report)),
            )
            bench.make("load", daemons.words_in_network(words), report, recorded=True)
        bench.place.chmod(mode)
        bench.figures |= figures_of(bench.steps["load"], _measured_s(bench.scale))

    return run


def figures_of(report: Mapping[str, Any], measured_s: float) -> dict[str, float]:
    """Return the figures as published: per minute, and the share of all CPUs."""
    counts, laps = report["counts"], report["laps"]
    minutes = measured_s / 60
    found = {f"{kind}_per_min": laps.get(kind, {"n": 0})["n"] / minutes for kind in ("smtp", "pop")}
    found |= {
        f"{kind}_per_min": counts.get(kind, 0) / minutes
        for kind in ("pop_mails", "smtp_errors", "pop_errors")
    }
    found |= {
        f"{kind}_mb_per_min": counts.get(f"{kind}_bytes", 0) / 1e6 / minutes
        for kind in ("smtp", "pop")
    }
    ticks = max(counts["all_ticks"], 1)
    return found | {
        "cpu_pct": 100 * counts["busy_ticks"] / ticks,
        "iowait_pct": 100 * counts["iowait_ticks"] / ticks,
    }


def _warm_up_s(scale: float) -> float:
    return max(WARM_UP_S * scale, LEAST_S)


def _measured_s(scale: float) -> float:
    return max(MEASURED_S * scale, LEAST_S)
