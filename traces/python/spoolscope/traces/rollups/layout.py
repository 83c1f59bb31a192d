"""Text of the reference page on roll-ups, for the site: ``docs/hooks.py`` asks for it."""

from spoolscope.traces.format import table_text
from spoolscope.traces.parquet import ROW_GROUP
from spoolscope.traces.rollups.buckets import SUB_BITS
from spoolscope.traces.rollups.names import HOUR_S, MARKER, MERGED
from spoolscope.traces.rollups.schema import CALL, CHANGES, MEASURES, ROLLUPS, VERSION
from spoolscope.traces.rollups.sealed import DIGEST, FILES, HOLDS, STEP

_HOW = {"sum": "added", "max": "the largest is kept"}

_MEASURES = ", ".join(f"`{column}`: {_HOW[how]}" for column, how in MEASURES.items())

_INTRO = f"""\
# Roll-ups

Sums of calls by minute, in place of a record of each call. The columns are those of version
{VERSION} of the schema.

## Files

```
schema={VERSION}/TABLE/host=HOST/date=YYYY-MM-DD/NAME.parquet
```

`TABLE` is one of {", ".join(f"`{name}`" for name in ROLLUPS)}; `date` is the UTC day of the rows.
A *flush* is what a recorder writes at once: one file in each table, all with one `NAME`, which is
the recorder's id and the number of its first minute. A file, once there, is never changed.

Rules for readers that list files on their own:

* A flush is there when its file in `{MARKER}` is there: this one is written last.
* A flush whose name begins with `{MERGED}-` was made by `spoolscope compact`. The footer of its
  `{MARKER}` names others in `{HOLDS}`, a list in JSON: while such a flush is still there, it does
  not count.
* A directory `schema=N` with a larger number than the reader knows is left out, and that is stated.
* A column that is newer than a file is null there: read the union of columns by name.

`spoolscope.traces.rollups.files.Rollups` follows them; its `paths(TABLE)` is a list for any engine.

Every file is Parquet with zstd, row groups of {ROW_GROUP:,} rows and checksums of pages. Rows are
sorted by their keys from left to right; those of merged flushes by hour, and by minute last.
Integers are signed, times are int64 nanoseconds, or seconds since the epoch; there are no logical
timestamp types. Footers have these keys:

| key | value |
|---|---|
| `format`, `version`, `table` | `spoolscope-rollup`, the version of the schema, the table |
| `host`, `flush` | host and name; a copy under another name is refused |
| `tool` | the spoolscope that wrote it |
| `recorder_id` | the recorder; not in merged flushes |
| `{STEP}` | merged flushes: step of `minute_s` but in `{MARKER}`, s; {HOUR_S:,}: by hour |
| `{FILES}` | `{MARKER}` only: bytes and BLAKE2b of 16 bytes, in hex, of each other file |
| `{HOLDS}` | `{MARKER}` only: the names of flushes whose rows it has |
| `{DIGEST}` | `{MARKER}` only: the BLAKE2b of the file while 32 zeros stand in its place |

## Sums

Equal keys may occur in many flushes. Of columns that are no keys, {_MEASURES}.
For calls that are alike, the `sum_ns` of all causes are together that of the cause `{CALL}`;
`calls` of `{MARKER}` is the `n` of `{CALL}` in that minute, or in all minutes of that hour.

A bucket is a range of times, {1 << SUB_BITS} to a doubling, so at most 1/{1 << SUB_BITS} (3.1 %)
wide; times below 64 ns have one each. For bucket *b* from 64 on let *s* = floor(*b* / 32) - 1: it
begins at (*b* - 32 *s*) 2^*s* ns and is 2^*s* ns wide. Counts of buckets are integers, and those
of many minutes and hosts add up without a loss.

## Names

`comm`, `unit` and `directory` are as the recorder writes names: pseudonyms, unless it was asked to
keep them. The name of the host stands in paths as it is. `spoolscope scrub` writes a copy in which
all of these are hidden.
"""


def text() -> str:
    """Return the whole page."""
    changes = [f"| {version} | {change} |" for version, change in CHANGES.items()]
    history = ["## Versions", "", "| schema | changes |", "|---|---|", *changes, ""]
    return "\n".join([_INTRO, *map(table_text, ROLLUPS.values()), *history])
