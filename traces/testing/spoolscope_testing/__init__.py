"""Parts that the tests of all components share; no program imports it, and no wheel has it."""
