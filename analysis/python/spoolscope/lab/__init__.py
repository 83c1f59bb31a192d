"""Experiments with known answers: slow disks, injected faults, the kjournald case."""
