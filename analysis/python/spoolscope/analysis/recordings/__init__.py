"""Comparison of two recordings of a service, before and after a change, with intervals.

Their calls are different ones, so nothing is paired. ``windows`` cuts a recording into windows of
time, ``resampling`` draws them again for intervals, ``moved`` compares both recordings,
``surroundings`` lists what else differed.
"""
