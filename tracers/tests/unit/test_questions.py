"""Every BPF program serves a question, and missing programs decide the answer."""

import re
from pathlib import Path

from spoolscope.tracers.questions import NO, PARTLY, QUESTIONS, YES, Answer, answers

BPF = Path(__file__).resolve().parents[2] / "src" / "bpf"
ALL = sorted({name for q in QUESTIONS for name in (*q.needs, *q.better)})


def programs(missing: dict[str, str], unloaded: tuple[str, ...] = ()) -> dict:
    attached = [name for name in ALL if name not in missing]
    return {"attached": attached, "missing": missing, "unloaded": list(unloaded)}


def answer(name: str, missing: dict[str, str], unloaded: tuple[str, ...] = ()) -> Answer:
    return next(a for a in answers(programs(missing, unloaded)) if a.name == name)


def test_every_program_of_the_recorder_serves_a_question():
    source = "".join(file.read_text() for file in sorted(BPF.glob("*.bpf.h")))
    written = re.findall(r'^SEC\("[^"]+"\)\nint (?:BPF_PROG\()?(\w+)', source, re.M)
    instead = re.search(r"const INSTEAD.*?;", (BPF.parent / "coverage.rs").read_text(), re.S)
    stand_ins = dict(re.findall(r'\("(\w+)", "(\w+)"\)', instead[0]))
    assert set(stand_ins.values()) <= set(ALL)
    assert sorted(set(written) - set(stand_ins)) == ALL


def test_everything_attached_answers_everything():
    assert {a.answer for a in answers(programs({}))} == {YES}


def test_a_refused_program_is_a_no_with_its_reason():
    found = answer("split", {"on_switch": "BPF program load failed: -EPERM"})
    assert (found.answer, found.reason) == (NO, "BPF program load failed: -EPERM")
    assert not found.unloaded


def test_a_missing_refinement_is_a_part_of_the_answer():
    found = answer("block", {"on_io_start": "this kernel has no tracepoint block_io_start"})
    assert found.answer == PARTLY
    assert found.reason.endswith(": this kernel has no tracepoint block_io_start")


def test_what_stands_in_for_a_missing_program_answers_too():
    absent = {"on_fault_page": "this kernel has no tracepoint mm_filemap_fault"}
    refused = {"in_fault_page": "BPF program load failed: -EPERM"}
    survey = programs(absent) | {"instead": {"on_fault_page": "in_fault_page"}}
    found = [a for a in answers(survey | {"missing": absent | refused}) if a.answer == NO]
    assert [a.reason for a in found] == ["; ".join((absent | refused).values())]
    survey["attached"].append("in_fault_page")
    assert {a.answer for a in answers(survey)} == {YES}


def test_a_filesystem_that_is_not_loaded_is_said_once():
    names = ("on_xfs_log_force", "on_xfs_iclog_sync", "on_xfs_iclog_done")
    why = "xfs is not loaded: mount one, or modprobe xfs"
    found = answer("xfs_log", dict.fromkeys(names, why), unloaded=names)
    assert (found.answer, found.reason, found.unloaded) == (NO, why, True)


def test_a_trace_older_than_a_question_does_not_answer_it():
    found = next(a for a in answers({"attached": [], "missing": {}}) if a.name == "split")
    assert (found.answer, found.reason) == (NO, "no program on_switch; no program on_waking")
