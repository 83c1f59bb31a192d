# %% [markdown]
# # Choosing a filesystem by one's own workload
#
# A recording of a mail server is replayed on several filesystems, in rounds of random order, each
# on a fresh image. The question: which one serves these calls in the least time, why, and how sure
# is that? `TRACE=/path/to/monday.trace` takes your own recording instead of the sample.
#
# Needs root. `SPOOLSCOPE_SCALE=1` replays all of the sample at its own pace, five times on each.
# `SPOOLSCOPE_ROUNDS=3` sets how often at any scale.

# %%
import os
import tempfile
from pathlib import Path

from spoolscope.analysis.compare import compare
from spoolscope.analysis.lives import MEASURES
from spoolscope.cli.called import call
from spoolscope.report.figures.causes import stacked
from spoolscope.report.figures.compare import forest

scale = float(os.environ.get("SPOOLSCOPE_SCALE", "0.1"))
here = Path.cwd()
samples = next(p / "traces/samples" for p in (here, *here.parents) if (p / "traces").is_dir())
trace = Path(os.environ.get("TRACE", samples / "postfix-dovecot"))
place = Path(tempfile.mkdtemp(prefix="notebook-", dir=os.environ.get("SPOOLSCOPE_WORK")))
print(f"scale {scale:g}, kernel {os.uname().release}")

# %% [markdown]
# ## What would be replayed?
# Before anything is written: what a replay does, leaves out and cannot do.

# %%
planned = call("plan", trace)
print({key: value for key, value in planned.items() if isinstance(value, int | str)})

# %% [markdown]
# ## The replay

# %%
names = ["ext4", "xfs", "btrfs"]
rounds = int(os.environ.get("SPOOLSCOPE_ROUNDS", max(1, round(5 * scale))))
part = [] if scale >= 1 else ["--slice", "5s..6s", "--pace", "afap"]
candidates = [word for name in names for word in ("--on", name)]
replayed = place / "replayed"
made = call("replay", trace, *candidates, "--rounds", str(rounds), *part, "-o", replayed)
print(f"{len(made['runs'])} runs")

# %% [markdown]
# ## The verdict
# The unit of the statistics is the run. A difference is called one only if the interval carries it.

# %%
result = compare([replayed])
print(result.verdict.headline)
print(result.verdict.sure)
for problem in result.verdict.problems:
    print("Weak:", problem)
for warning in result.verdict.warnings:
    print("Warning:", warning)

# %%
forest(result.pairs, result.reference, list(result.candidates))

# %% [markdown]
# ## Why
# The same calls, split by what they waited for.

# %%
for reason in result.verdict.reasons:
    print("-", reason)

# %%
figure = stacked([(name, c.causes) for name, c in result.candidates.items()])
figure

# %% [markdown]
# ## What else counts
# Time of mkfs, filling, check and removal, usable room, bytes written to the disk for each byte
# that calls wrote; and what a crash leaves.

# %%
print(f"{'':16}" + "".join(f"{c.fstype:>12}" for c in result.candidates.values()))
for key, measure in MEASURES.items():
    lives = [candidate.life.get(key) for candidate in result.candidates.values()]
    values = [measure.shown(life.median if life else None) for life in lives]
    print(f"{measure.label:16}" + "".join(f"{value:>12}" for value in values))
for name, candidate in result.candidates.items():
    print(f"{name}: durability {candidate.durability}")
