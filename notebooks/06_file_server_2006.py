# %% [markdown]
# # 2006: eleven tasks of a file server
#
# A published comparison of 2006 timed eleven tasks on ext3, jfs, reiserfs and xfs, with GNU time:
# elapsed time, share of the CPU, page faults. It said what each costs: mkfs, mount, copies of a
# 700 MB file and of a tree of 1.9 GB, listing, finding, removal.
#
# Needs root. `SPOOLSCOPE_SCALE=1` is the published size; the default is tiny, so that it runs in a
# minute. `SPOOLSCOPE_ROUNDS=5` repeats it; `SPOOLSCOPE_VM=6.1` adds filesystems that newer kernels
# lack, in a machine with that kernel. What you read was made as the first output below says.

# %%
import os
import tempfile
from pathlib import Path

from spoolscope.cli.called import call
from spoolscope.lab.workloads.causes import causes_of_steps
from spoolscope.report.figures.causes import stacked
from spoolscope.report.figures.then_now import then_and_now

scale = float(os.environ.get("SPOOLSCOPE_SCALE", "0.002"))
rounds = int(os.environ.get("SPOOLSCOPE_ROUNDS", "1"))
place = Path(tempfile.mkdtemp(prefix="notebook-", dir=os.environ.get("SPOOLSCOPE_WORK")))

# %% [markdown]
# ## The same load today
# The candidates have all defaults, as then; ext4 is today's default.

# %%
kernel = os.environ.get("SPOOLSCOPE_VM", "")
candidates = [
    *["c2006-ext3", "c2006-xfs", "ext4"],
    *(["c2006-jfs", "c2006-reiserfs"] if kernel else []),
]
on = [word for name in candidates for word in ("--on", name)]
asked = ["file-server", *on, "--scale", str(scale), *(["--vm", kernel] if kernel else [])]
found = call("lab", "workload", *asked, "--rounds", str(rounds), "-o", place / "timed")
machine = found["machine"]["accelerator"] if found["machine"] else "no machine of its own"
print(f"{found['workload']} at scale {found['scale']:g}, {found['rounds']} rounds")
print(f"Linux {found['kernel']}, {machine}")

# %% [markdown]
# How this load differs from the published one:

# %%
for sentence in found["differs"]:
    print("-", sentence)

# %% [markdown]
# ## Then and now
# Hardware differs by twenty years, so only ratios between candidates can be compared. A diamond
# is the published ratio, a circle is today's; its bar is the 95 % interval over the rounds.

# %%
table = next(
    (t for t in found["tables"] if any(f["then"] for f in t["figures"])), found["tables"][0]
)
print(f"{'':54}{found['year']:>9}{'now':>12}")
for figure in table["figures"]:
    if figure["now"] is not None:
        then = "-" if figure["then"] is None else f"{figure['then']:g}"
        print(f"{figure['metric']:28}{figure['candidate']:26}{then:>9}{figure['now']:>12.4g}")

# %%
then_and_now(table, found["year"], found["reference"])

# %% [markdown]
# ## Which claims still hold?
# A claim holds, or does not, only if the interval says so; three rounds are the least.

# %%
for claim in found["claims"]:
    why = f" ({claim['why']})" if claim["why"] else ""
    print(f"{claim['verdict']:14} {claim['text']}{why}")

# %% [markdown]
# ## Why
# The same load once more on the first and the last candidate, recorded: what the calls of each step
# waited for.

# %%
ends = [*on[:2], *on[-2:]]
call(
    "lab",
    "workload",
    "file-server",
    *ends,
    *asked[1 + len(on) :],
    "--record",
    "-o",
    place / "recorded",
)
causes = causes_of_steps(place / "recorded")
for step, by_candidate in causes.items():
    for name, spent in by_candidate.items():
        most = sorted(spent.items(), key=lambda item: -item[1])[:3]
        words = ", ".join(f"{cause} {ns / 1e6:.0f} ms" for cause, ns in most)
        print(f"{step:16}{name:26}{words}")

# %%
rows = [(f"{step}: {name}", spent) for step, each in causes.items() for name, spent in each.items()]
figure = stacked(rows)
figure
