"""Mounts of a traced program below the root, and files opened there, do not count as spool."""

ELSEWHERE = 1 << 9
LINES = """
openat(AT_FDCWD, "/spool/a", O_RDWR|O_CREAT, 0600) = 3
mount("none", "/spool/sub", "tmpfs", 0, NULL) = 0
mkdir("/spool/sub/d", 0777) = 0 #
openat(AT_FDCWD, "/spool/sub/d", O_RDONLY|O_DIRECTORY) = 4 #
dup(4) = 5 #
fstat(5, {st_mode=S_IFDIR|0755, st_size=40, ...}) = 0 #
openat(4, "f", O_WRONLY|O_CREAT, 0600) = 6 #
write(6, ""..., 9) = 9 #
unlinkat(4, "../../b", 0) = -1 ENOENT (No such file or directory)
fchdir(4) = 0 #
rename("f", "g") = 0 #
mkdir("../../c", 0777) = 0
chdir("/spool") = 0
close(5) = 0 #
mount("/spool/c", "/spool/sub", NULL, MS_BIND, NULL) = 0
mkdir("sub/e", 0777) = 0
rename("sub/e", "a") = -1 EXDEV (Invalid cross-device link) #
umount2("/spool/sub", 0) = 0
umount2("/spool/sub", MNT_DETACH) = 0
mkdir("sub/d", 0777) = 0
fsync(3) = 0
"""


def test_calls_elsewhere_are_told_apart(imported, calls) -> None:
    lines = LINES.strip().splitlines()
    trace = imported({"log": "".join(f"70 {line.removesuffix(' #')}\n" for line in lines)})
    rows = [row for row in calls(trace) if "mount" not in row["syscall"]]
    told = [line for line in lines if "mount" not in line]
    found = [bool(row["flags_seen"] & ELSEWHERE) for row in rows]
    assert found == [line.endswith("#") for line in told], list(zip(told, found, strict=True))
    made = [row["path"] for row in rows if row["syscall"] == "mkdir" and row["path"] is not None]
    assert made == ["c", "c/e", "sub/d"]
