"""The form in which a path was given is kept where it matters."""

import pytest

from spoolscope.tracers.given import below, is_special, normal, tidy, within

MOUNTS = (b"/mnt/", b"/mnt/sub/mount/")


@pytest.mark.parametrize(
    ("whole", "path", "given"),
    [
        (b"/mnt/a/b", b"/mnt/a/b", None),
        (b"/mnt//a/./b", b"/mnt/a/b", None),
        (b"/mnt/a/", b"/mnt/a", b"/mnt/a/"),
        (b"/mnt/a//", b"/mnt/a", b"/mnt/a/"),
        (b"/mnt/a/.", b"/mnt/a", b"/mnt/a/."),
        (b"/mnt/a/.//", b"/mnt/a", b"/mnt/a/."),
        (b"/mnt/a/./b/..", b"/mnt/a", b"/mnt/a/b/.."),
        (b"/mnt/a/../", b"/mnt", b"/mnt/a/.."),
        (b"/mnt/a/../b", b"/mnt/b", b"/mnt/a/../b"),
        (b"/mnt/..a/b..", b"/mnt/..a/b..", None),
        (b"/mnt/.", b"/mnt", b"/mnt/."),
        # The replay has another root, so the way to the mount point is not kept.
        (b"/mnt/", b"/mnt", None),
        (b"/mnt/a/../../mnt/b/", b"/mnt/b", b"/mnt/b/"),
        (b"/mnt/../mnt/b", b"/mnt/b", None),
        (b"/mnt/sub/mount/../mount/x", b"/mnt/sub/mount/x", None),
        (b"/etc/x/", b"/etc/x", None),
        (b"/mnt/a/../..", b"/", None),
    ],
)
def test_a_name_is_kept_as_it_was_given_if_that_tells_more(whole, path, given):
    assert normal(whole) == path
    assert below(path, tidy(whole), MOUNTS) == given
    assert is_special(whole) or given is None


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (b"/mnt/r/../up", b"/mnt/r/./up"),
        (b"/mnt/r/d/../../../up", b"/mnt/r/d/../././up"),
        (b"/mnt/r//./d/../..", b"/mnt/r//./d/../."),
        (b"/mnt/r/d/../f", b"/mnt/r/d/../f"),
        # The working directory may lie outside: only at the root itself there is no way up.
        (b"/mnt/../mnt/r/../f", b"/mnt/../mnt/r/./f"),
        (b"/mnt/rr/../f", b"/mnt/rr/../f"),
    ],
)
def test_the_root_directory_leads_up_to_itself(path, kept):
    assert within(b"/mnt/r", path) == kept
