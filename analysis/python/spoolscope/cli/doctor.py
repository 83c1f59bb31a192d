"""The verb doctor."""

import click

from spoolscope.cli.output import emit_json, field, json_option, wrapped
from spoolscope.cli.printing import say
from spoolscope.tracers.check import check
from spoolscope.tracers.questions import answers

EPILOG = """\b
Examples:
  sudo spoolscope doctor
  sudo spoolscope doctor --json
"""


@click.command(epilog=EPILOG)
@json_option
def command(*, as_json: bool) -> int:
    """Say what a recording on this machine can tell, and why not.

    Every answer comes from trying. Exit code 1 if no recording is possible here.
    """
    findings, survey = check()
    usable = all(f.ok for f in findings if f.needed)
    answered = answers(survey) if survey else []
    if as_json:
        facts = {"findings": [vars(f) for f in findings], "questions": [vars(a) for a in answered]}
        emit_json({"usable": usable, "tier": survey.get("tier"), **facts, **survey})
        return 0 if usable else 1
    for finding in findings:
        mark = "ok" if finding.ok else "NO" if finding.needed else "no"
        say(*wrapped(finding.detail, f"{mark:>6}  {finding.name:16} ", " " * 25))
    if answered:
        say("A recording here tells:")
    for answer in answered:
        say(*field("-" if answer.unloaded else answer.answer, answer.question, 6))
        if answer.reason:
            say(*field("", f"  ({answer.reason})", 6))
    if usable:
        say("Next: sudo spoolscope record --spool MOUNT -d 60")
    else:
        say("No recording is possible here until the lines marked NO are mended.")
    return 0 if usable else 1
