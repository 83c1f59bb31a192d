"""Ways out: a trace, and what the analysis makes of it, in the formats of other tools."""
