"""Recording: from the kernel to a trace directory."""
