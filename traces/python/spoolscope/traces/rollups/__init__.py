"""Roll-ups: sums of calls by minute, in place of a record of each call.

A roll-up directory holds ``schema=1/TABLE/host=HOST/date=YYYY-MM-DD/NAME.parquet``, so that the
directories of many hosts can lie in one. A file, once there, is never changed.
"""
