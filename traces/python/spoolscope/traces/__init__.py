"""The format of traces: records, calls, tables, and the directory that holds them."""
