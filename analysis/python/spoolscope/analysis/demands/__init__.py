"""The demands of --fail-if on a comparison: metrics, limits, and decisions by intervals.

``language`` reads an expression, ``decisions`` compares an interval with its limit;
``of_recordings`` and ``of_replays`` measure.
"""
