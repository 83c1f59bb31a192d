"""Figures of a report: from numbers to Plotly, without computing numbers for the reader."""
