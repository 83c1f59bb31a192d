"""Answers about a fleet: the roll-ups of many hosts, summed by day and compared.

The queries are Ibis expressions (``expressions``), which DuckDB and Spark compute alike; the
statistics (``outliers``, ``change``) are made from their small results. The unit of statistics is
the host, and the host-day below it, never the call.
"""
