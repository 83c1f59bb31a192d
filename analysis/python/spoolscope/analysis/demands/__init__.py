"""What --fail-if demands of a comparison: metrics, limits, and whether intervals carry them.

``language`` reads an expression, ``decisions`` holds an interval against its limit;
``of_recordings`` and ``of_replays`` measure.
"""
