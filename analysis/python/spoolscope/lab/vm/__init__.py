"""A machine that boots a distribution kernel with this machine's files as its own."""
