"""Export of a trace, and of tables derived from it, in the formats of other tools."""
