"""The loads of published comparisons of filesystems, repeated on today's candidates."""
