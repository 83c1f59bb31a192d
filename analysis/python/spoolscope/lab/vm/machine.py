"""What a machine is made of: its kernel, processors and disks, as words for QEMU."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from spoolscope.lab.vm.initrd import initrd
from spoolscope.lab.vm.kernels import Kernel
from spoolscope.replay.images import program_path
from spoolscope.traces.errors import SpoolscopeError

QEMU = "qemu-system-x86_64"
MOST_CPUS = 4
# With AVX, as numpy wants it; without what QEMU's emulator warns that it does not have.
EMULATED = "Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid"
# What QEMU 7.2 makes of the AVX2 that numpy's argsort uses is wrong: of 16,443 numbers 1,586 came
# to a wrong place, and then nothing is found among sorted keys. Without it numpy is right.
RIGHT = {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}
# KVM of another kind may begin to run a distribution's kernel, and then stand still.
HARDWARE = Path("/sys/module/kvm_intel"), Path("/sys/module/kvm_amd")


@dataclass(frozen=True)
class Machine:
    """A machine to boot.

    Attributes:
        kernel: What it boots.
        memory_mib: Its memory.
        cpus: Its processors; None: as many as its accelerator makes good use of.
        icount: Its clock counts instructions: CPU time is the same in every run.
    """

    kernel: Kernel
    memory_mib: int = 2048
    cpus: int | None = None
    icount: bool = False

    @property
    def accelerator(self) -> str:
        """What runs its instructions: the processor ("kvm"), or an emulator ("tcg")."""
        usable = os.access("/dev/kvm", os.W_OK) and any(module.exists() for module in HARDWARE)
        return "kvm" if usable and not self.icount else "tcg"

    @property
    def environment(self) -> dict[str, str]:
        """Variables without which programs in it calculate wrongly."""
        return {} if self.accelerator == "kvm" else RIGHT

    @property
    def processors(self) -> int:
        """How many processors it has."""
        if self.cpus is not None:
            return self.cpus
        return min(os.cpu_count() or 1, MOST_CPUS) if self.accelerator == "kvm" else 1

    def facts(self) -> dict[str, object]:
        """Return what results that were made in it are to be marked with."""
        return {
            "series": self.kernel.series,
            "kernel": self.kernel.release,
            "accelerator": self.accelerator,
            "icount": self.icount,
            "cpus": self.processors,
            "memory_mib": self.memory_mib,
            "host": {"kernel": os.uname().release, "cpu": _processor()},
        }

    def check(self) -> None:
        """Make sure that it can be run.

        Raises:
            SpoolscopeError: a program is missing.
        """
        if not shutil.which(QEMU, path=program_path()):
            raise SpoolscopeError(
                f"the machine needs the program {QEMU}",
                remedy="apt-get install qemu-system-x86 seabios",
            )
        initrd(self.kernel)

    def command(self, disks: dict[Path, str], ports: dict[str, int], console: Path) -> list[str]:
        """Return the command that runs it.

        Args:
            disks: Images, /dev/vda and so on, and what they are for, as its init knows it.
            ports: Descriptors of sockets by name of the serial port; without "stdout", the
                machine has this terminal.
            console: Where the kernel's messages go.

        Raises:
            SpoolscopeError: a program is missing.
        """
        self.check()
        words = [QEMU, *self._processor_words(), "-m", str(self.memory_mib), "-machine", "q35"]
        words += ["-nodefaults", "-display", "none", "-no-reboot", "-chardev"]
        words += [f"file,id=console,path={console},append=on", "-serial", "chardev:console"]
        words += ["-kernel", str(self.kernel.image), "-initrd", str(initrd(self.kernel))]
        # All that this machine has, and nothing of it can be changed.
        words += ["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]
        words += ["-device", "virtio-9p-pci,fsdev=host,mount_tag=host", "-device", "virtio-rng-pci"]
        for i, disk in enumerate(disks):
            words += ["-drive", f"file={disk},if=none,id=d{i},format=raw,discard=unmap"]
            words += ["-device", f"virtio-blk-pci,drive=d{i}"]
        words += ["-device", "virtio-serial-pci"]
        for name, descriptor in ports.items():
            words += ["-chardev", f"socket,id={name},fd={descriptor}"]
            words += ["-device", f"virtserialport,chardev={name},name={name}"]
        if terminal := "stdout" not in ports:
            words += ["-chardev", "stdio,id=terminal,signal=off"]
            words += ["-device", "virtconsole,chardev=terminal"]
        return [*words, "-append", self._kernel_words([*disks.values()], terminal=terminal)]

    def _processor_words(self) -> list[str]:
        words = ["-smp", str(self.processors), "-accel"]
        if self.accelerator == "kvm":
            return [*words, "kvm", "-cpu", EMULATED]
        # One thread for all CPUs: with more, QEMU 7.2 ran a stale breakpoint while the kernel
        # patched a static key (bpf_stats_enabled), and 6.12 panicked.
        words += ["tcg,thread=single", "-cpu", EMULATED]
        # sleep=off would make idle time jump.
        return [*words, "-icount", "shift=0,sleep=on"] if self.icount else words

    def _kernel_words(self, purposes: list[str], *, terminal: bool) -> str:
        # No address randomisation and no mitigations: only for speed. A panic ends the machine.
        words = ["console=ttyS0", "quiet", "panic=-1", "nokaslr", "mitigations=off"]
        words += ["tsc=reliable", "audit=0", f"spoolscope.modules={self.kernel.modules_directory}"]
        for letter, purpose in zip(ascii_lowercase, purposes, strict=False):
            words += [f"spoolscope.{purpose}=/dev/vd{letter}"] if purpose else []
        return " ".join([*words, "spoolscope.terminal=1"] if terminal else words)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""
