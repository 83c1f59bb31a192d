"""Lines of spoolscope info: processes, and what the recording cost."""

import pytest
from click.testing import CliRunner

from spoolscope.cli.main import group


def lines(*words):
    result = CliRunner().invoke(group, [str(word) for word in words], catch_exceptions=False)
    return [line.strip() for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (1, "12.81 % of all CPUs (1 sample)"),
        (19, "12.81 % of all CPUs (19 samples)"),
        (20, "12.81 % of all CPUs (95th percentile 14.00 % of 20 samples)"),
    ],
)
def test_a_percentile_of_the_cost_needs_samples(builder, n, said):
    builder.call("fsync", 0)
    trace = builder.write(overhead_ppm={"n": n, "median": 128_100, "p95": 140_000})
    assert f"cost  {said}" in lines("info", trace)


def test_info_and_plan_say_which_threads_they_count(builder):
    builder.call("fsync", 0, tid=1)
    for tid in (1, 2):
        builder.add("threads", tid=tid, pid=1, comm="imap", kind="task", n_calls=0)
    trace = builder.write()
    assert "processes  1 with calls (1 thread)" in lines("info", trace)
    [threads] = [line for line in lines("plan", "-q", trace) if "threads" in line]
    assert threads.startswith("2  threads, those without calls of their own included, in ")
