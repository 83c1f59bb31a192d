"""An installation without the packages of fleets, as the Debian package is: the remedy is named."""

import json
import subprocess
import sys

from spoolscope_testing.rollups import RollupMaker

# The verbs run where these packages cannot be imported.
PROGRAM = """
import json, sys
from click.testing import CliRunner
from spoolscope.cli.main import group
words, absent = map(json.loads, sys.argv[1:])
sys.modules |= dict.fromkeys(absent)
for verb in words:
    error = CliRunner().invoke(group, verb).exception
    print(f"{error.message}; {error.remedy}")
"""


def said(words: list[list[str]], *absent: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, json.dumps(words), json.dumps(absent)]
    return subprocess.check_output(command, text=True).splitlines()


def test_every_verb_names_the_command_that_installs_what_is_missing(tmp_path):
    RollupMaker().write(tmp_path)
    where = str(tmp_path)
    verbs = [
        ["fleet", "report", where],
        ["fleet", "report", where, "--host", "mail1"],
        ["fleet", "days", where],
    ]
    with_pip, spark = said([*verbs[:1], [*verbs[2], "--engine", "local[2]"]], "ibis", "pyspark")
    assert with_pip.startswith("ibis is not installed; ")
    assert f"{sys.executable} -m pip install " in with_pip
    assert "'ibis-framework[duckdb]" in with_pip
    assert "'pyspark[connect]" in spark
    for line in said(verbs, "ibis", "pip"):
        assert f"python3 -m pip --python {sys.executable} install " in line
        assert line.endswith("(pip is in the Debian package python3-pip)")
