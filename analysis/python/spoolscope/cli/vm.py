"""The verb lab vm, and messages of commands about machines."""

import os
import shutil
import sys
from pathlib import Path

import click

from spoolscope.cli.limits import Number
from spoolscope.cli.output import progress, quiet_option, warn
from spoolscope.cli.printing import say
from spoolscope.lab.vm import kernels, zfs
from spoolscope.lab.vm.machine import Machine
from spoolscope.lab.vm.results import Ended
from spoolscope.lab.vm.running import run
from spoolscope.replay import images
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS
from spoolscope.traces.phases import Progress

EMULATED = (
    "the machine is emulated, as KVM cannot run its kernel here: work on the CPU takes three to "
    "ten times as long, so its times say nothing about real hardware"
)
COUNTED = (
    "the machine is emulated and each instruction takes 1 ns: its CPU times can be compared with "
    "each other, but not with those of real hardware"
)
EPILOG = """\b
Examples:
  sudo spoolscope lab vm
  sudo spoolscope lab vm --kernel 6.12 -- sh -c 'modprobe jfs && grep jfs /proc/filesystems'
  sudo spoolscope lab vm --disk old.img --bring check.txt -- \\
      sh -c 'jfs_fsck -n /dev/vda > check.txt'
"""

memory_option = click.option(
    "--memory",
    "memory_mib",
    type=Number(512, 1 << 20),
    default=2048,
    show_default=True,
    metavar="MIB",
    help="Memory of each machine.",
)
icount_option = click.option(
    "--icount",
    is_flag=True,
    help="Let the clock count instructions and keep images in the machine's memory: CPU times of "
    "calls are then exact, and a run takes longer.",
)


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]...")
@click.option(
    "--kernel", "series", default="6.1", show_default=True, help="Series of the Debian kernel."
)
@click.option("--cpus", type=Number(1, 64), help="Processors [1 if emulated, else up to 4].")
@memory_option
@icount_option
@click.option(
    "--disk",
    "disks",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Writable disk image for the machine: the first is /dev/vda there, the next /dev/vdb.",
)
@click.option(
    "--bring",
    "back",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File or directory to copy back from the machine; may be repeated.",
)
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Let what comes back replace files, and be added to directories, that exist here.",
)
@quiet_option
def command(
    words: tuple[str, ...],
    series: str,
    cpus: int | None,
    memory_mib: int,
    icount: bool,
    disks: tuple[Path, ...],
    back: tuple[Path, ...],
    force: bool,
    quiet: bool,
) -> int:
    """Run a command, or a shell, on a distribution's kernel.

    QEMU boots it in seconds with all files of this machine, but no network:
    packages that a command needs are fetched here before. What it writes
    vanishes with the machine, except what --bring names. There is room for
    images in /run/spoolscope-vm/scratch. The exit code is that of the command.
    Ctrl-C interrupts it; a second one ends the machine.
    """
    if not words and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SpoolscopeError(
            "a shell needs a terminal", remedy="give a command after --", exit_code=USAGE
        )
    wanted = {path: Path.cwd() / path for path in back}
    for path in wanted:
        if os.path.lexists(path) and not force:
            raise SpoolscopeError(
                f"{path} exists", remedy="bring another name, or use --force", exit_code=USAGE
            )
    with progress(quiet=quiet) as show:
        machine = machine_of(series, memory_mib, show, cpus=cpus, icount=icount)
    tell_of_accelerator(machine, quiet=quiet)
    with run(
        machine,
        words or _shell(),
        back=list(wanted.values()),
        disks=disks,
        environment=environment(machine),
        terminal=not words,
    ) as ended:
        for path, inside in wanted.items():
            if not ended.bring(inside, path):
                warn(f"{path} was not written in the machine")
    end_if_interrupted(ended)
    return ended.status


@click.command(epilog="Example: sudo spoolscope lab zfs && spoolscope replay T --on zfs --vm 6.1")
@click.option(
    "--kernel",
    "series",
    type=click.Choice(FILESYSTEMS["zfs"].kernels),
    default=FILESYSTEMS["zfs"].kernels[0],
    show_default=True,
    help="Series of the Debian kernel.",
)
@quiet_option
def zfs_command(series: str, quiet: bool) -> int:
    """Build the zfs module for a kernel of lab vm.

    Debian's kernels have no zfs. Its sources and programs come from Debian's
    section contrib, by apt lists that only this command uses. It compiles for
    minutes, once for each kernel; the result stays in the cache of kernels.
    """
    with progress(quiet=quiet) as show:
        kernel = kernels.fetch(series, show)
        if not zfs.is_built(kernel):
            zfs.build(kernel, show)
    say(f"machines with kernel {kernel.release} have zfs")
    return 0


def machine_of(
    series: str, memory_mib: int, show: Progress, *, cpus: int | None = None, icount: bool = False
) -> Machine:
    """Return a machine, its kernel fetched if need be.

    Raises:
        SpoolscopeError: the kernel is not available.
    """
    return Machine(kernels.fetch(series, show), memory_mib, cpus, icount)


def tell_of_accelerator(machine: Machine, *, quiet: bool) -> None:
    """Warn that the times of an emulated machine are not those of hardware."""
    if machine.accelerator != "kvm" and not quiet:
        warn(COUNTED if machine.icount else EMULATED)


def end_if_interrupted(ended: Ended) -> None:
    """End as any command does after Ctrl-C; keep the results that came back."""
    if ended.interrupted:
        raise KeyboardInterrupt


def environment(machine: Machine) -> dict[str, str]:
    """Return the environment of a command in a machine: this one, with spoolscope on the PATH."""
    here = Path(sys.executable).parent
    path = f"{here}:{images.program_path()}:{zfs.programs(machine.kernel)}"
    return os.environ | machine.environment | {"PATH": path}


def _shell() -> list[str]:
    """Return the user's shell, in a terminal of this one's size."""
    columns, lines = shutil.get_terminal_size()
    shell = os.environ.get("SHELL", "/bin/sh")
    return ["sh", "-c", f'stty rows {lines} columns {columns}; exec "$0" -i', shell]
