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
from spoolscope.cli.repeated import repeat

# %% [markdown]
# ## The same load today
# The candidates have all defaults, as then; ext4 is today's default.

# %%
again = repeat(
    "file-server",
    ["c2006-ext3", "c2006-xfs", "ext4"],
    ["c2006-jfs", "c2006-reiserfs"],
    scale="0.002",
)

# %% [markdown]
# How this load differs from the published one:

# %%
again.say_how_it_differs()

# %% [markdown]
# ## Then and now
# Hardware differs by twenty years, so only ratios between candidates can be compared. A diamond
# is the published ratio, a circle is today's; its bar is the 95 % interval over the rounds.

# %%
again.say_figures()

# %%
again.ratios()

# %% [markdown]
# ## Which claims still hold?
# A claim holds, or does not, only if the interval says so; three rounds are the least.

# %%
again.say_claims()

# %% [markdown]
# ## Why
# The same load once more on the first and the last candidate, recorded: what the calls of each step
# waited for.

# %%
figure = again.causes()
figure
