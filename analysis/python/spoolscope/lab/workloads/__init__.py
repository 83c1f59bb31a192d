"""The loads of published comparisons of filesystems, repeated on candidates of today."""
