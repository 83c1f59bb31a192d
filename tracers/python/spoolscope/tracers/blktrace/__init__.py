"""Block requests stage by stage, from blktrace or from ftrace's ``blk`` tracer.

Both give one stream of ``struct blk_io_trace``: ``records`` reads it, ``stages`` joins the events
of a request, ``columns`` makes the table ``block_stages``. ``capture`` records; files of a
separate blktrace are read with::

    events = read_events(sorted(Path().glob("sda.blktrace.*")))
    write_table(directory, "block_stages", stage_columns(events, shift_ns=0, comms=Comms(None)))
"""
