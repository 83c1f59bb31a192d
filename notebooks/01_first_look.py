# %% [markdown]
# # A first look at a trace
#
# Everything `spoolscope explain` prints is a call of the package; the tables behind it are
# Parquet and answer any other question through DuckDB. Open this file in Jupyter (jupytext) or
# run it: `.venv/bin/python notebooks/01_first_look.py`.

# %%
from pathlib import Path

from spoolscope.analysis.explain import explain
from spoolscope.report.figures.causes import totals
from spoolscope.traces.trace import Trace

here = Path.cwd()
samples = next(p / "traces/samples" for p in (here, *here.parents) if (p / "traces").is_dir())
trace = Trace.open(samples / "postfix-dovecot")
print(f"{trace.meta['counts']['syscalls']:,} calls, complete: {trace.meta['complete']}")

# %% [markdown]
# ## Where the time went
# The parts of every call sum to its latency, exactly; `file_lock` is Postfix processes waiting
# for their turn to accept a connection, not a slow filesystem.

# %%
explanation = explain(trace)
assert explanation.split.sum_error_ns == 0
for cause, ns in sorted(explanation.causes.items(), key=lambda item: -item[1]):
    print(f"{cause:16} {ns / 1e6:12.1f} ms")

# %%
figure = totals([(c, ns) for c, ns in explanation.causes.items() if ns and c != "file_lock"])
figure.update_layout(title="Time in calls by cause")

# %% [markdown]
# ## Any other question is SQL
# Which files were synced most, and how long did it take?

# %%
print(
    trace.connect().sql("""
        SELECT regexp_replace(path, '^.*/', '') AS name, count(*) AS syncs,
               CAST(sum(dur_ns) / 1e6 AS INT) AS ms, CAST(max(dur_ns) / 1e6 AS INT) AS longest_ms
        FROM syscalls JOIN paths USING (path_id)
        WHERE syscall IN ('fsync', 'fdatasync')
        GROUP BY 1 ORDER BY 2 DESC LIMIT 10""")
)
