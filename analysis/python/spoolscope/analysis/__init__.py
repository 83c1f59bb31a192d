"""Explain traces and compare replays: every number a user sees is computed here."""
