"""The trace contract: records, calls, tables, and the directory that holds them."""
