# %% [markdown]
# # 2004: Maildirs for a qmail server
#
# A published comparison of 2004 unpacked 77,133 mails into one directory, made 10,100 Maildirs,
# and wrote and read mails at random on ext2, ext3, reiserfs and reiser4. It said that ext2 writes
# fastest, as it has no journal; that dir_index makes unpacking 14 times faster and the whole load
# slower; and that ext3 is no filesystem for Maildirs.
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

scale = float(os.environ.get("SPOOLSCOPE_SCALE", "0.001"))
rounds = int(os.environ.get("SPOOLSCOPE_ROUNDS", "1"))
place = Path(tempfile.mkdtemp(prefix="notebook-", dir=os.environ.get("SPOOLSCOPE_WORK")))

# %% [markdown]
# ## The same load today
# The candidates have the published options of mkfs and mount. reiserfs left Linux with 6.13;
# reiser4 is in no kernel that can be had.

# %%
kernel = os.environ.get("SPOOLSCOPE_VM", "")
candidates = [
    *["c2004-ext2", "c2004-ext3", "c2004-ext3-dir-index"],
    *(["c2004-reiserfs"] if kernel else []),
]
on = [word for name in candidates for word in ("--on", name)]
asked = ["maildir-io", *on, "--scale", str(scale), *(["--vm", kernel] if kernel else [])]
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
    "maildir-io",
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
