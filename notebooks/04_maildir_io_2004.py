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
from spoolscope.cli.repeated import repeat

# %% [markdown]
# ## The same load today
# The candidates have the published options of mkfs and mount. reiserfs left Linux with 6.13;
# reiser4 is in no kernel that can be had.

# %%
again = repeat(
    "maildir-io",
    ["c2004-ext2", "c2004-ext3", "c2004-ext3-dir-index"],
    ["c2004-reiserfs"],
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
