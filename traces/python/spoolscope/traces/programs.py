"""Paths of programs and control groups as they are shown: what is private in them is hidden."""

import re

from spoolscope.traces.comms import Comms, is_known

# Directories of programs, and the groups that systemd makes.
_PLACES = frozenset(
    b"""usr bin sbin lib lib32 lib64 libexec local opt snap nix store courier courier-imap exim
    exim4 cyrus cyrus-imapd sendmail system.slice user.slice machine.slice init.scope
    app.slice session.slice kubepods.slice docker libpod machine sys fs cgroup unified""".split()
)
_UNIT = re.compile(rb"(system-)?(.+?)(@[-\d]*)?\.(service|slice|scope|socket|mount|timer)")


def program(path: bytes, comms: Comms) -> str:
    """Return the path of a program, its unusual components hidden as names of threads are."""
    return "/".join([_component(part, comms) for part in path.split(b"/")])


def group(path: bytes, comms: Comms) -> str:
    """Return the path of a control group, with the names of well-known services."""
    return "/".join([_group(part, comms) for part in path.split(b"/")])


def _component(part: bytes, comms: Comms) -> str:
    return part.decode() if part in _PLACES or not part else comms.text(part)


def _group(part: bytes, comms: Comms) -> str:
    unit = _UNIT.fullmatch(part)
    return part.decode() if unit and is_known(unit[2]) else _component(part, comms)
