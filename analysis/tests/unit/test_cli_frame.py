"""The frame of the command line: help, errors, exit codes, progress, outputs."""

import io
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from spoolscope_testing.trace_builder import TraceBuilder

from spoolscope.cli import main as cli
from spoolscope.cli.output import Pace, _Plain, claim_output, emit_json, next_line, progress
from spoolscope.traces.errors import SpoolscopeError

pytestmark = pytest.mark.slow

OURS = '{"schema": "spoolscope/1"}'


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spoolscope.cli.main", *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_help_within_80_columns(verb: str) -> None:
    result = run(verb, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"Usage: spoolscope {verb}")
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_option_is_explained(verb: str) -> None:
    command = cli.group.get_command(click.Context(cli.group), verb)
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert [o.name for o in options if not o.help] == []


@pytest.mark.parametrize("words", [(), ("lab",), ("fleet",), ("import",)])
def test_a_group_alone_shows_its_help_as_it_is_laid_out(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == run(*words, "--help").stdout


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["recrod"], "no verb 'recrod'; did you mean 'record'?"),
        (["explain", "--blam"], "No such option '--blam'; did you mean '--blame' or '--names'?"),
    ],
)
def test_a_mistyped_word_has_one_remedy(
    words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert capsys.readouterr().err == f"spoolscope: error: {remedy}\n"


def test_what_root_recorded_is_for_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["report", str(tmp_path)])
    assert "is not readable; use sudo" in capsys.readouterr().err


@pytest.mark.parametrize(("uid", "said"), [("1000", "sudo spoolscope"), ("0", "spoolscope")])
def test_the_next_command_is_run_as_this_one(
    uid: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", uid)
    assert next_line("spoolscope explain a") == f"Next: {said} explain a"
    assert next_line("sudo spoolscope top") == "Next: sudo spoolscope top"


def test_a_place_that_may_not_be_written_is_known_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with (
        pytest.raises(SpoolscopeError, match="may not be written"),
        claim_output(tmp_path / "new", force=False),
    ):
        pytest.fail("the work began")


def test_help_lists_every_verb_and_imports_none() -> None:
    code = "import sys; from spoolscope.cli.main import main\ntry: main(['--help'])\n"
    code += "finally: print(sorted(m for m in sys.modules if m.startswith('spoolscope')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert all(verb in result.stdout for verb in cli.VERBS)
    assert "spoolscope.cli.main" in result.stdout
    assert "spoolscope.cli.report" not in result.stdout


def test_pandas_is_not_imported_by_pyarrow(builder: TraceBuilder) -> None:
    """Check a query, for which pyarrow would import it, and that the answer is the same."""
    if not find_spec("pandas"):
        pytest.skip("pandas is not installed, so nothing can import it")
    asked = ["query", str(builder.write()), "SELECT 6 * 7 AS found", "--json"]
    code = f"import sys; from spoolscope.cli.main import main; sys.argv[1:] = {asked}\n"
    code += "try: main()\nfinally: print('pandas' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.split()[-1] == "False"
    assert json.loads(done.stdout) == [{"found": 42}]


@pytest.mark.parametrize("given", [None, "2"])
def test_numpy_begins_no_threads(given: str | None) -> None:
    """Check also that a recorded command does not get the variable for that."""
    code = "import os, click; from spoolscope.cli import main; from pathlib import Path\n"
    code += "main.group.get_command(click.Context(main.group), 'record')\n"
    code += "names = [p.read_text() for p in Path('/proc/self/task').glob('*/comm')]\n"
    code += "own = Path('/proc/self/comm').read_text()\n"
    code += "print(names.count(own), os.environ.get('OPENBLAS_NUM_THREADS'))"
    env = {k: v for k, v in os.environ.items() if k != cli.BLAS_THREADS}
    env |= {cli.BLAS_THREADS: given} if given else {}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    begun, left = done.stdout.split()
    assert left == str(given)
    assert begun == "1" or given


@pytest.mark.parametrize(
    "arguments",
    [("nothing",), ("info", "--nothing"), ("info",), ("info", "/nonexistent/trace")],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("spoolscope: error: ")
    assert result.stderr.count("\n") == 1


def fails(error: BaseException) -> click.Command:
    @click.command("fails")
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SpoolscopeError("it broke", remedy="mend it"), 1, "it broke; mend it"),
        (SpoolscopeError("not so", remedy="do so", exit_code=2), 2, "not so; do so"),
        (KeyboardInterrupt(), 1, "interrupted"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied"),
        (OSError(28, "No space left on device"), 1, "on device; free space"),
        (TypeError("None\nis not so"), 1, "TypeError: None is not so; the input is damaged"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_errors_become_lines_and_codes(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.VerbGroup, "get_command", lambda *_: fails(error))
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(cli, "_drop_stdout", lambda: None)
    with pytest.raises(SystemExit) as caught:
        cli.main(["info"])
    assert caught.value.code == code
    assert text in stderr.getvalue()
    # click itself ends the line of a ^C
    assert stderr.getvalue().strip().count("\n") == 0


def test_a_verb_that_returns_3_exits_3(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("three")
    def three() -> int:
        return 3

    monkeypatch.setattr(cli.VerbGroup, "get_command", lambda *_: three)
    with pytest.raises(SystemExit) as caught:
        cli.main(["info"])
    assert caught.value.code == 3


def test_an_existing_output_is_kept_unless_forced(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    output.write_text("old")
    with pytest.raises(SpoolscopeError, match="exists"), claim_output(output, force=False):
        pass
    assert output.read_text() == "old"
    with claim_output(output, force=True):
        assert not output.exists()
    assert list(tmp_path.iterdir()) == []


def test_force_removes_only_what_spoolscope_wrote(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter").write_text("dear")
    with pytest.raises(SpoolscopeError, match="did not write"), claim_output(home, force=True):
        pass
    assert (home / "letter").read_text() == "dear"
    (home / "meta.json").write_text(OURS)
    with claim_output(home, force=True):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrote", [True, False])
def test_what_force_replaces_is_back_if_nothing_takes_its_place(tmp_path: Path, wrote) -> None:
    output = tmp_path / "monday.trace"
    output.mkdir()
    (output / "meta.json").write_text(OURS)

    def write() -> None:
        output.mkdir()
        if wrote:
            (output / "new").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), claim_output(output, force=True):
        write()
    assert list(tmp_path.iterdir()) == [output]
    assert [file.name for file in output.iterdir()] == ["new" if wrote else "meta.json"]


@pytest.mark.parametrize("read", [".", "ext4-r1/trace"])
def test_force_does_not_remove_what_is_read(tmp_path: Path, read: str) -> None:
    output = tmp_path / "monday"
    (output / read).mkdir(parents=True)
    (output / "meta.json").write_text(OURS)
    with (
        pytest.raises(SpoolscopeError, match="which is read"),
        claim_output(output, force=True, inputs=[output / "x/.." / read]),
    ):
        pass
    assert (output / "meta.json").exists()


@pytest.mark.root
def test_force_does_not_reach_into_a_mounted_filesystem(spool) -> None:
    mount = spool("ext4")
    (mount / "mail").touch()
    (mount.parent / "replay.json").write_text("{}")
    output = mount.parent
    with (
        pytest.raises(SpoolscopeError, match="something is mounted there") as error,
        claim_output(output, force=True),
    ):
        pass
    assert str(mount) in error.value.message
    assert (mount / "mail").exists()


def test_a_foreign_meta_json_does_not_make_a_directory_ours(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"title": "somebody else"}')
    with pytest.raises(SpoolscopeError, match="did not write"), claim_output(tmp_path, force=True):
        pass
    assert (tmp_path / "meta.json").exists()


@pytest.mark.parametrize("link", [False, True])
def test_no_device_or_pipe_is_replaced(link: bool, tmp_path: Path) -> None:
    output = tmp_path / "output"
    if link:
        output.symlink_to("/dev/null")
    else:
        os.mkfifo(output)
    with pytest.raises(SpoolscopeError, match="no file"), claim_output(output, force=True):
        pass
    assert output.is_symlink() == link
    assert output.is_fifo() != link
    assert [file.name for file in tmp_path.iterdir()] == ["output"]


def test_an_empty_directory_is_a_free_output(tmp_path: Path) -> None:
    with claim_output(tmp_path, force=False):
        assert tmp_path.is_dir()


def test_json_knows_numpy_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    emit_json({"n": np.int64(3), "path": Path("/x"), "values": np.arange(2)})
    assert json.loads(capsys.readouterr().out) == {"n": 3, "path": "/x", "values": [0, 1]}


def test_plain_progress_prints_each_step_once(capsys: pytest.CaptureFixture[str]) -> None:
    show = _Plain()
    for fraction in (0.0, 0.1, 0.2):
        show("replay ext4", fraction)
    show("replay xfs", 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "replay xfs  50 %" in lines[1]


def test_the_rest_is_told_from_where_the_share_last_began() -> None:
    pace = Pace()
    pace.at(0.0, None)
    assert pace.left_s(0.0) is None
    pace.at(20.0, 0.0)  # a recording of 20 s is over, its conversion begins
    pace.at(21.0, 0.01)
    assert pace.left_s(21.0) is None
    pace.at(25.0, 0.25)
    assert pace.left_s(25.0) == pytest.approx(15)
    assert pace.left_s(30.0) == pytest.approx(10)  # it does not grow without news
    assert pace.left_s(41.0) is None
    pace.at(42.0, 0.0)
    assert pace.left_s(42.0) is None


def test_a_step_that_says_nothing_is_shown_again(capsys, monkeypatch) -> None:
    monkeypatch.setattr("spoolscope.cli.output.PLAIN_INTERVAL_S", 0.5)
    with progress() as show:
        show("counting", 0.5)
        time.sleep(2.2)
    said = capsys.readouterr().err.splitlines()
    assert len(said) >= 2
    assert {line.partition("] ")[2] for line in said} == {"counting  50 %"}
