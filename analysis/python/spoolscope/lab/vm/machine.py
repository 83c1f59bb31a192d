"""Description of a machine: its kernel, processors and disks, as arguments for QEMU."""

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
# A CPU with AVX, which numpy needs, without features that QEMU's emulator lacks.
EMULATED = "Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid"
# QEMU 7.2 emulates the AVX2 code of numpy's argsort wrongly: of 16,443 numbers 1,586 came to a
# wrong place, so searches in sorted keys fail. Without AVX2 numpy is right.
RIGHT = {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}
# Other kinds of KVM may start a distribution's kernel and then hang.
HARDWARE = Path("/sys/module/kvm_intel"), Path("/sys/module/kvm_amd")


@dataclass(frozen=True)
class Machine:
    """A machine to boot.

    Attributes:
        kernel: Kernel to boot.
        memory_mib: Its memory.
        cpus: Its processors; None: as many as suit its accelerator.
        icount: Its clock counts instructions, so CPU time is the same in every run.
    """

    kernel: Kernel
    memory_mib: int = 2048
    cpus: int | None = None
    icount: bool = False

    @property
    def accelerator(self) -> str:
        """Executor of its instructions: the processor ("kvm"), or an emulator ("tcg")."""
        usable = os.access("/dev/kvm", os.W_OK) and any(module.exists() for module in HARDWARE)
        return "kvm" if usable and not self.icount else "tcg"

    @property
    def environment(self) -> dict[str, str]:
        """Variables without which programs in it calculate wrongly, or not alike in each boot."""
        same = {"PYTHONHASHSEED": "0"} if self.icount else {}
        return {} if self.accelerator == "kvm" else {**RIGHT, **same}

    @property
    def processors(self) -> int:
        """Number of its processors."""
        if self.cpus is not None:
            return self.cpus
        return min(os.cpu_count() or 1, MOST_CPUS) if self.accelerator == "kvm" else 1

    def facts(self) -> dict[str, object]:
        """Return the facts with which results from this machine are marked."""
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
            disks: Images for /dev/vda and so on, with their purpose for the machine's init.
            ports: Descriptors of sockets by name of the serial port; without "stdout", the
                machine has this terminal.
            console: File for the kernel's messages.

        Raises:
            SpoolscopeError: a program is missing.
        """
        self.check()
        words = [QEMU, *self._processor_words(), "-m", str(self.memory_mib), "-machine", "q35"]
        words += ["-nodefaults", "-display", "none", "-no-reboot", "-chardev"]
        words += [f"file,id=console,path={console},append=on", "-serial", "chardev:console"]
        words += ["-kernel", str(self.kernel.image), "-initrd", str(initrd(self.kernel))]
        # All files of this machine, read-only.
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
        # Addresses decide how often pages fault.
        words += ["norandmaps"] if self.icount else []
        words += ["tsc=reliable", "audit=0", f"spoolscope.modules={self.kernel.modules_directory}"]
        for letter, purpose in zip(ascii_lowercase, purposes, strict=False):
            words += [f"spoolscope.{purpose}=/dev/vd{letter}"] if purpose else []
        return " ".join([*words, "spoolscope.terminal=1"] if terminal else words)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""
