"""Layers below a filesystem are taken down, also if the kernel still closes their device."""

import pytest

from spoolscope.replay import images, stack
from spoolscope.traces.errors import SpoolscopeError


@pytest.fixture
def busy(monkeypatch, tmp_path):
    """Let the layer's device be in use for a number of attempts to remove it."""
    (tmp_path / "disk").write_bytes(bytes(16 << 20))
    left: list[int] = []
    ran: list[str] = []

    def run(*command):
        ran.append(command[0])
        if command[0] == "vgremove" and left[0]:
            left[0] -= 1
            raise SpoolscopeError("vgremove failed: Logical volume in use.", remedy="wait")
        return ""

    monkeypatch.setattr(images, "run", run)
    monkeypatch.setattr(stack, "carried_out", lambda _: [])
    monkeypatch.setattr(stack, "RETRY_S", 0.0)

    def set_up(attempts: int) -> list[str]:
        left[:] = [attempts]
        with stack.stacked(["lvm"], [tmp_path / "disk"], tmp_path, []):
            pass
        return ran

    return set_up


def test_a_device_that_is_still_being_closed_is_waited_for(busy):
    assert busy(3) == ["modprobe", *["vgremove"] * 4]


def test_one_that_stays_in_use_is_named_with_the_remedy(busy):
    with pytest.raises(SpoolscopeError, match=r"stays: .*in use") as raised:
        busy(10**6)
    assert raised.value.remedy.startswith("once nothing uses it: vgremove --yes --force spoolscope")
