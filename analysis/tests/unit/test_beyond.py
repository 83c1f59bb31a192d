"""The sentences on calls that are in no table: their programs, and what to do."""

from spoolscope.analysis.beyond import unjudged_calls


def calls(comm: str, pid: int, n: int, why: str = "not looked at", cgroup: str = "/") -> dict:
    return {"comm": comm, "pid": pid, "cgroup": cgroup, "calls": n, "why": why}


def test_calls_that_were_not_judged_are_summed_by_program_and_unit():
    told = unjudged_calls(
        {
            "unjudged": [
                calls("imap", 7, 3, cgroup="/system.slice/docker-1.scope"),
                calls("imap", 8, 1200, cgroup="/system.slice/docker-1.scope"),
                calls("php-fpm", 9, 5, "many names"),
            ]
        }
    )
    assert len(told) == 2
    assert told[0].startswith(
        "1,203 calls by absolute names of imap (2 processes, docker-1.scope) came before"
    )
    assert "begin the recording when it runs" in told[0]
    assert told[1].startswith("5 calls by absolute names of php-fpm (process 9) came where")
    assert "mount it there at fewer and shorter places" in told[1]


def test_nothing_is_told_where_nobody_is_known():
    assert unjudged_calls({"calls_unjudged": 1, "unjudged": []}) == []
    assert unjudged_calls({"calls_unjudged": 1}) == []
    assert len(unjudged_calls({"unjudged": [calls(f"p{n}", n, 1) for n in range(9)]})) == 6


def test_a_process_that_several_segments_name_is_one():
    (told,) = unjudged_calls({"unjudged": [calls("imap", 7, 3), calls("imap", 7, 4)]})
    assert told.startswith("7 calls by absolute names of imap (process 7) came")
