"""Twelve candidates in five rounds: ordered, readable, undecided and less durable ones named."""

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.durability import beside
from spoolscope.analysis.wording import fitting
from spoolscope.cli.compare import text
from spoolscope.report.build import replay_page

MS = 1_000_000
N, ROUNDS = 200, 5
LONG = "a-filesystem-with-a-long-name-and-options"
SCALES = {
    "ext2": 0.5,
    LONG: 0.505,
    "xfs": 0.8,
    "ext4": 1.0,
    **{f"candidate-{n}": 1.1 + n / 10 for n in range(7)},
    "wild": 0.7,
}
LOST = {"ext2": "weaker: no journal: a crash may lose directories"}


@pytest.fixture
def matrix(builder, new_replay):
    for n in range(N):
        builder.call("fsync" if n % 4 else "rename", n * 50 * MS, oncpu_ns=MS)
    replay = new_replay("out", builder.write(), N, rounds=ROUNDS, reference="ext4")
    for round_ in range(ROUNDS):
        for number, (name, scale) in enumerate(SCALES.items()):
            noise = 1 + 0.004 * ((round_ * 7 + number * 3) % 5)
            if name == "wild":
                noise *= 4.0 ** (round_ % 2)
            taken = [int(scale * noise * MS)] * N
            replay.run(name, taken, round_, durability=LOST.get(name, "same"))
    return replay.write()


def test_the_fastest_comes_first_and_what_cannot_be_told_from_it_is_named(matrix):
    found = compare([matrix])
    assert found.reference == "ext4"  # as given to the replay, not the first
    order = [name for name in found.candidates if name != "wild"]
    assert order == sorted(order, key=SCALES.__getitem__)
    assert len(found.pairs) == len(SCALES) - 1
    said = found.verdict.sure
    assert "As good as ext2: a-filesystem-with-a-long-name-and-options." in said
    assert "Not told apart from ext2: wild." in said
    words = {pair.candidate: pair.word for pair in found.pairs}
    assert (words["xfs"], words["candidate-3"], words["wild"]) == (
        "faster",
        "slower",
        "inconclusive",
    )


def test_speed_that_costs_durability_is_told_with_it(matrix):
    found = compare([matrix])
    assert found.verdict.headline.endswith(
        "But it is less durable: no journal: a crash may lose directories."
    )
    (said,) = found.to_json()["other_durability"].values()
    assert said == "less durable: no journal: a crash may lose directories"
    assert compare([matrix], "xfs").verdict.headline.endswith("a crash may lose directories.")
    against = compare([matrix], "ext2")  # all others keep more after a crash
    assert set(against.other_durability) == set(SCALES) - {"ext2"}


def test_the_next_command_leaves_out_what_more_rounds_would_not_change(matrix):
    verdict = compare([matrix], "wild").verdict
    assert verdict.word == "inconclusive"
    words = verdict.next_command.split()
    assert [words[at + 1] for at, word in enumerate(words) if word == "--on"] == ["ext2", "wild"]


def test_the_terminal_has_a_row_for_each_within_80_columns(matrix):
    lines = [line for block in text(compare([matrix])) for line in block.split("\n")]
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("xfs ") for line in lines) == 2  # candidates, secondary metrics
    assert next(line.split()[1] for line in lines if line.startswith("! ")) == "ext2"
    assert "! ext2 beside ext4: less durable: no journal: a crash may lose directories" in lines


def test_the_report_draws_one_row_for_each(matrix):
    page = replay_page([matrix], lambda _what, _done: None)
    forest = next(figure for figure in page.figures if figure.key == "forest")
    names = [name for name in compare([matrix]).candidates if name != "ext4"]
    assert list(forest.plot.layout.yaxis.ticktext) == [
        {"ext2": "! ext2", LONG: fitting(LONG, 24, 4)}.get(name, name) for name in names
    ]
    assert {trace.name for trace in forest.plot.data} == {"faster", "slower", "inconclusive"}
    assert sum(len(trace.x) for trace in forest.plot.data) == len(SCALES) - 1
    tails = next(figure for figure in page.figures if figure.key == "tails")
    drawn = list(dict.fromkeys(trace.name for trace in tails.plot.data))
    assert len(drawn) == 7
    assert "ext4" in drawn  # the reference is always there
    looks = {(t.line.color, t.line.dash) for t in tails.plot.data}
    assert len(looks) == 7
    assert "The other 5 candidates are only in the tables." in tails.caption


def test_what_is_not_stated_is_not_called_less_durable():
    kept = {"ext4": "same", "own": "not stated", "ext2": "weaker: no journal", "mine": "not stated"}
    assert beside(kept, "ext4") == {
        "own": "whether one is more durable is not known: what it keeps is not stated",
        "ext2": "less durable: no journal",
        "mine": "whether one is more durable is not known: what it keeps is not stated",
    }
    assert beside(kept, "own")["ext4"].endswith("what own keeps is not stated")
    assert "mine" not in beside(kept, "own")
    assert beside(kept, "ext2")["ext4"] == "more durable; ext2: no journal"
