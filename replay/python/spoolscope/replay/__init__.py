"""Re-execution: a plan from a trace, candidates, rounds, verdicts."""
