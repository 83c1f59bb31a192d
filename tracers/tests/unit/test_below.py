"""Names on spools with mounts below them lead to the right place."""

from spoolscope.tracers.below import Below

META = {
    "mounted_below": [
        {"mount_ns": 70, "own": True, "places": [["/m/old", None], ["/m/b", "/m/src"]]},
        {"mount_ns": 80, "own": False, "places": [["/m/box", None]]},
    ]
}


def test_a_name_leads_into_a_mount_until_that_goes():
    below = Below({})
    assert not below.any
    below.mounted(0, b"/m/sub", None)
    assert below.any
    assert below.where(0, b"/m/sub") is None
    assert below.where(0, b"/m/sub/x") is None
    assert below.where(0, b"/m/subtle") == b"/m/subtle"
    below.unmounted(0, b"/m/sub")
    assert below.where(0, b"/m/sub/x") == b"/m/sub/x"


def test_the_last_mount_that_holds_a_name_counts():
    below = Below({})
    below.mounted(0, b"/m/a", None)
    below.mounted(0, b"/m/a/shown", b"/m/src")
    assert below.where(0, b"/m/a/shown/x") == b"/m/src/x"
    below.mounted(0, b"/m/a", None)
    assert below.where(0, b"/m/a/shown/x") is None
    below.unmounted(0, b"/m/a")
    assert below.where(0, b"/m/a/shown/x") == b"/m/src/x"
    # umount -l also removes the mounts on it.
    below.unmounted(0, b"/m/a")
    assert below.where(0, b"/m/a/shown/x") == b"/m/a/shown/x"


def test_what_was_mounted_before_can_be_unmounted():
    below = Below(META)
    assert below.any
    assert below.where(0, b"/m/old/x") is None
    assert below.where(0, b"/m/b/x") == b"/m/src/x"
    for place in (b"/m/old", b"/m/b"):
        below.unmounted(below.number(70), place)
    assert below.where(0, b"/m/old/x") == b"/m/old/x"
    assert below.where(0, b"/m/b/x") == b"/m/b/x"


def test_a_new_namespace_begins_as_a_copy_and_goes_its_own_way():
    below = Below(META)
    below.begin(90, 0, anew=True)
    below.mounted(90, b"/m/sub", None)
    assert below.where(90, b"/m/old/x") is None
    assert below.where(90, b"/m/sub/x") is None
    assert below.where(0, b"/m/sub/x") == b"/m/sub/x"
    # Another process enters the namespace; then all leave it, and its number is reused.
    below.begin(90, 0, anew=False)
    assert below.where(90, b"/m/sub/x") is None
    below.begin(90, 0, anew=True)
    assert below.where(90, b"/m/sub/x") == b"/m/sub/x"
    # A namespace that existed at the start keeps its own mounts.
    below.begin(80, 0, anew=True)
    assert below.where(80, b"/m/box/x") is None
    assert below.where(80, b"/m/old/x") == b"/m/old/x"


def test_mounts_move_repeat_and_follow_renames():
    below = Below({})
    below.mounted(0, b"/m/a/one", None)
    below.mounted(0, b"/m/a/two", b"/m/src/d")
    below.repeated(0, b"/m/again", b"/m/a")
    assert below.where(0, b"/m/again/two/x") == b"/m/src/d/x"
    below.renamed(b"/m/a", b"/m/z")
    below.renamed(b"/m/src", b"/m/dst")
    assert below.where(0, b"/m/z/one/x") is None
    assert below.where(0, b"/m/z/two/x") == b"/m/dst/d/x"
    below.moved(0, b"/m/z/one", b"/m/to")
    assert below.where(0, b"/m/z/one/x") == b"/m/z/one/x"
    assert below.where(0, b"/m/to/x") is None


def test_a_copy_stays_as_it_was():
    below = Below(META)
    before = below.copy()
    below.unmounted(0, b"/m/old")
    assert before.where(0, b"/m/old/x") is None
    assert before.number(70) == 0
