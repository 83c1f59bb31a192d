# %% [markdown]
# # 2007: Postfix and Courier
#
# A published comparison of 2007 had a client deliver to Postfix and fetch and delete from Courier
# over POP3, both without a limit, with queue, mailboxes and logs on one filesystem: ext3 and
# reiserfs in three modes each, xfs and jfs. It said that xfs is far ahead for SMTP and behind for
# POP with deletion.
#
# Needs root. `SPOOLSCOPE_SCALE=1` is the published size; the default is tiny, so that it runs in a
# minute. `SPOOLSCOPE_ROUNDS=5` repeats it; `SPOOLSCOPE_VM=6.1` adds filesystems that newer kernels
# lack, in a machine with that kernel. What you read was made as the first output below says.

# %%
from spoolscope.cli.repeated import repeat

# %% [markdown]
# ## The same load today
# The real daemons run, under clients with the published parameters of postal and rabid, on the
# same machine.

# %%
again = repeat(
    "postfix-courier",
    ["c2007-ext3-ordered", "c2007-xfs"],
    ["c2007-jfs", "c2007-reiserfs-ordered"],
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
