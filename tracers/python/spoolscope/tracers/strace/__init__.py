"""The output of strace as a capture: calls without segments, for machines without BPF."""
