# %% [markdown]
# # 2008: deliverers beside a reader
#
# A published comparison of 2008 let 1, 2, 4, 8 and 16 processes deliver into 100,000 Maildirs
# beside one reader, on ext3 in its three modes, xfs, reiserfs and jfs. It said that xfs is best
# overall but its reads degrade with the number of deliverers, and that writeback is the best mode
# of ext3, then ordered, then journal.
#
# Needs root. `SPOOLSCOPE_SCALE=1` is the published size; the default is tiny, so that it runs in a
# minute. `SPOOLSCOPE_ROUNDS=5` repeats it; `SPOOLSCOPE_VM=6.1` adds filesystems that newer kernels
# lack, in a machine with that kernel. What you read was made as the first output below says.

# %%
from spoolscope.cli.repeated import repeat

# %% [markdown]
# ## The same load today
# The candidates have the published options of mkfs and mount.

# %%
again = repeat(
    "fsbench",
    ["c2008-ext3-ordered", "c2008-ext3-writeback", "c2008-ext3-journal", "c2008-xfs"],
    ["c2008-jfs", "c2008-reiserfs"],
    scale="0.001",
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
