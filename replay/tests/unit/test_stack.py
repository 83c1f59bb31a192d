"""Layers below a filesystem are taken down, also if the kernel still closes their device."""

import pytest

from spoolscope.replay import images, patience, stack
from spoolscope.traces.errors import SpoolscopeError

IN_USE = "vgremove refuses: Logical volume spoolscope-1-1/spool in use."
GONE = 'vgremove refuses: Volume group "spoolscope-1-1" not found'


@pytest.fixture
def removed(monkeypatch, tmp_path):
    """Return ``removed(refusals)``: the commands that ran while vgremove refused so often."""
    (tmp_path / "disk").write_bytes(bytes(16 << 20))
    ran: list[str] = []

    def run(refusals: list[str]) -> list[str]:
        def carried_out(commands):
            for command in commands:
                ran.append(command[0])
                if command[0] == "vgremove" and refusals:
                    raise SpoolscopeError(refusals.pop(), remedy="change the options")
            return []

        monkeypatch.setattr(stack, "carried_out", carried_out)
        with stack.stacked(["lvm"], [tmp_path / "disk"], tmp_path, []):
            ran.clear()
        return ran

    monkeypatch.setattr(images, "run", lambda *_: "")
    monkeypatch.setattr(patience, "PAUSE_S", 0.001)
    monkeypatch.setattr(stack, "RELEASE_S", 0.1)
    run.ran = ran
    return run


def test_a_device_that_is_still_being_closed_is_waited_for(removed):
    assert removed([IN_USE] * 3) == ["vgremove"] * 4


def test_one_that_stays_in_use_is_named_with_the_remedy(removed):
    with pytest.raises(SpoolscopeError, match=r"stays: .*in use") as raised:
        removed([IN_USE] * 10_000)
    assert raised.value.remedy.startswith("once nothing uses it: vgremove --yes ")
    assert len(removed.ran) > 3


def test_another_refusal_is_final(removed):
    with pytest.raises(SpoolscopeError, match=r"stays: .*not found"):
        removed([GONE])
    assert removed.ran == ["vgremove"]
