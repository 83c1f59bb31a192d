"""Paths of programs and control groups with their private components hidden."""

from spoolscope.traces.comms import Comms

# Usual directories of programs, and groups that systemd makes.
_PLACES = frozenset(
    b"""usr bin sbin lib lib32 lib64 libexec local opt snap nix store courier courier-imap exim
    exim4 cyrus cyrus-imapd sendmail home system.slice user.slice machine.slice init.scope
    app.slice session.slice kubepods.slice docker libpod machine sys fs cgroup unified""".split()
)


def program(path: bytes, comms: Comms) -> str:
    """Return the path of a program; below /home the first component is a user."""
    parts = path.split(b"/")
    at_home = parts[:2] == [b"", b"home"] and len(parts) > len(["", "home", "user"])
    shown = [_component(part, comms) for part in parts]
    if at_home:
        shown[2] = comms.hide(parts[2])
    return "/".join(shown)


def group(path: bytes, comms: Comms) -> str:
    """Return the path of a control group."""
    return "/".join(
        part.decode() if part in _PLACES else comms.unit(part) for part in path.split(b"/")
    )


def _component(part: bytes, comms: Comms) -> str:
    return part.decode() if part in _PLACES else comms.text(part)
