"""Figures of a report: from numbers to Plotly; nothing is computed here that a user reads."""
