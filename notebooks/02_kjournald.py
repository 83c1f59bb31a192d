# %% [markdown]
# # "kjournald hogs the machine, and iotop names nobody"
#
# From a symptom to the culprit, to a remedy, and to the proof that the remedy helps: by replaying
# the recorded load on a filesystem that has it, before a production server is touched.
#
# The trouble is made on purpose here (`spoolscope lab kjournald`), on an ext3 filesystem on a
# disk that takes its time. With your own recording, begin at "Who did it?".
#
# Needs root. `SPOOLSCOPE_SCALE=1` takes some ten minutes; smaller is quicker and less certain.
# `SPOOLSCOPE_ROUNDS=5` sets how often each candidate is replayed: five times the scale if not set.

# %%
import os
import tempfile
from pathlib import Path

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.compare import compare
from spoolscope.analysis.explain import explain
from spoolscope.cli.called import call
from spoolscope.report.figures.causes import stacked, totals
from spoolscope.report.figures.compare import forest
from spoolscope.traces.trace import Trace

scale = float(os.environ.get("SPOOLSCOPE_SCALE", "0.1"))
place = Path(tempfile.mkdtemp(prefix="notebook-", dir=os.environ.get("SPOOLSCOPE_WORK")))
kernel = os.uname().release
print(f"scale {scale:g}, kernel {kernel}")

# %% [markdown]
# ## The symptom
# Mails are delivered by `lmtp`, and deliveries take long. The journal's thread is what
# writes most; it belongs to no program, so that tools which count by process name nobody.

# %%
seconds = max(2, round(8 * scale))
made = call("lab", "kjournald", "--variant", "checkpoint", "--seconds", str(seconds), "-o", place)
trace = Trace.open(place / "checkpoint-ordered.trace")
print(f"{trace.meta['counts']['syscalls']:,} calls recorded in {seconds} s")
print(
    trace.connect().sql("""
        SELECT comm AS thread, count(*) AS requests, sum(bytes) // 1000 AS kb
        FROM block_ios GROUP BY comm ORDER BY kb DESC LIMIT 6""")
)

# %% [markdown]
# ## Who did it?
# `explain` adds up the time of every call, exactly, and names what it waited for.

# %%
found = explain(trace)
assert found.split.sum_error_ns == 0
totals([(cause, ns) for cause, ns in found.causes.items() if ns])

# %%
for insight in made["insights"]:
    print(f"{insight['culprit']} {insight['mechanism']}.\n   {insight['remedy']}")

# %% [markdown]
# The waiting programs are not the cause. `lmtp` waits for directory locks and for the journal;
# what fills the journal are the names that `indexer` makes and renames:

# %%
print(
    trace.connect().sql("""
        SELECT comm AS program, count(*) FILTER (syscall LIKE 'rename%') AS renames,
               count(*) FILTER (syscall LIKE 'f%sync') AS syncs,
               CAST(sum(dur_ns) / 1e6 AS INT) AS ms_in_calls
        FROM syscalls GROUP BY 1 ORDER BY renames DESC""")
)

# %% [markdown]
# ## A remedy, and its proof
# A larger journal is what `explain` proposes. The recorded calls are replayed on the filesystem as
# it was, on one with a larger journal and on ext4, each on the model of a 7,200 rpm disk.

# %%
rounds = int(os.environ.get("SPOOLSCOPE_ROUNDS", max(1, round(5 * scale))))
asis, larger = "ext3[-b 1024 -J size=1]", "ext3[-b 1024 -J size=64]"
candidates = [word for name in (asis, larger, "ext4") for word in ("--on", name)]
pace = [] if scale >= 1 else ["--pace", "afap", "--no-life", "--repeats", "0"]
proof = place / "proof"
call("replay", trace.path, *candidates, "--device-model", "hdd7k", "--rounds", str(rounds),
     *pace, "-o", proof)  # fmt: skip
result = compare([proof], f"{asis}@hdd7k")
print(result.verdict.headline)
print(result.verdict.sure)

# %%
for pair in result.pairs:
    print(f"{pair.candidate}: {pair.primary.ratio:.2f} times the time in calls, {pair.word}")
forest(result.pairs, result.reference, list(result.candidates))

# %% [markdown]
# What went away, and what is left:

# %%
kept = {name: c.causes for name, c in result.candidates.items()}
shown = [cause for cause in CAUSES if max(causes.get(cause, 0) for causes in kept.values()) > 1e7]
for cause in shown:
    spent = ", ".join(f"{name} {causes.get(cause, 0) / 1e9:.2f} s" for name, causes in kept.items())
    print(f"{CAUSES[cause].label}: {spent}")
figure = stacked(list(kept.items()))
figure
