# %% [markdown]
# # 2005: an archive of a million mails
#
# A published comparison of 2005 wrote 1,075,962 mails from a tar, read them into a pipe, checked
# the filesystem and removed all, on ext3, reiserfs and UFS2. It said that reiserfs and ext3 with
# dir_index write equally fast and plain ext3 clearly slower; and that reading takes much longer
# with dir_index, in the order of hashes.
#
# Needs root. `SPOOLSCOPE_SCALE=1` is the published size; the default is tiny, so that it runs in a
# minute. `SPOOLSCOPE_ROUNDS=5` repeats it; `SPOOLSCOPE_VM=6.1` adds filesystems that newer kernels
# lack, in a machine with that kernel. What you read was made as the first output below says.

# %%
from spoolscope.cli.repeated import repeat

# %% [markdown]
# ## The same load today
# The candidates have the published options; ext4 is today's default. UFS2 has no writer in Linux.

# %%
again = repeat(
    "cyrus-archive",
    ["c2005-ext3", "c2005-ext3-dir-index", "ext4"],
    ["c2005-reiserfs"],
    scale="0.0005",
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
