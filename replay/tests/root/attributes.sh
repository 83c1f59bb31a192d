# Changes of modes, owners, times, sizes, contents and attributes below $1, each by a process of its
# own; and calls of user 1000 that these changes make fail.
set -eu
cd "$1"
other() { setpriv --reuid 1000 --regid 1000 --clear-groups "$@" >/dev/null 2>&1 || true; }
# Give user 1000 a right to another user's file by an ACL, and remove all ACLs.
allow() {
	python3 -Sc '
import os, struct, sys
entries = [(1, 6, -1), (2, 4, 1000), (4, 0, -1), (16, 4, -1), (32, 0, -1)]
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
os.setxattr(sys.argv[1], "system.posix_acl_access", acl)' "$1"
}
forbid() { python3 -Sc 'import os, sys; os.removexattr(sys.argv[1], "system.posix_acl_access")' "$1"; }
for i in $(seq 15); do
	echo x >f$i; ln f$i g$i; mkdir d$i; echo x >d$i/f; mkdir -p d$i/e/e; echo x >d$i/e/e/f
	/bin/chmod 700 f$i; /bin/chmod 755 g$i; /bin/chown 1:1 g$i; /bin/chown 2:2 f$i
	/bin/touch -d 2001-01-01 f$i; /bin/touch -d 2002-01-01 g$i
	/usr/bin/truncate -s 100 f$i; /usr/bin/truncate -s 50 g$i
	python3 -Sc "import os; os.truncate('f$i', 70)"; python3 -Sc "import os; os.truncate('g$i', 60)"
	/bin/dd if=/dev/zero of=d$i/g bs=10 count=1 status=none
	/bin/dd if=/dev/zero of=d$i/g bs=30 count=1 conv=notrunc status=none
	setfattr -n user.a -v 1 f$i; setfattr -n user.a -v 22222 g$i; getfattr -d f$i >/dev/null
	setfattr -x user.a f$i; setfattr -n user.b -v 333 g$i; setfattr -n user.c -v 4 f$i
	getfattr -d g$i >/dev/null
	/bin/chmod 700 d$i; other /bin/cat d$i/e/e/f; /bin/chmod 755 d$i; other /bin/cat d$i/e/e/f
	/bin/chmod 600 d$i/f; other /bin/cat d$i/f; /bin/chmod 644 d$i/f; other /bin/cat d$i/f
	/bin/mv d$i c$i; /bin/chown 1000 c$i/e; other /bin/touch c$i/e/new; /bin/chown 0 c$i/e
	other /bin/rm -f c$i/e/new; other /bin/mkdir c$i/e/d; /bin/chmod 777 c$i/e
	other /bin/mkdir c$i/e/d; /bin/chmod 1777 c$i/e; other /bin/rmdir c$i/e/e/../e; other /bin/mv c$i/e/e c$i/e/z
	/bin/chmod 4755 c$i/f; other /bin/chmod 700 c$i/f; /bin/chown 1000 c$i/f; other /bin/chmod 640 c$i/f
	/bin/chown 5:5 c$i/f; other /bin/cat c$i/f; allow c$i/f; other /bin/cat c$i/f; forbid c$i/f; other /bin/cat c$i/f
	/bin/chmod 604 c$i/f; other /bin/cat c$i/f
	/bin/chmod 2775 c$i; echo x >c$i/h; /bin/chown :7 c$i; echo x >c$i/i; mkdir c$i/j; /bin/chmod g-s c$i; echo x >c$i/k
	/bin/ln -s b$i a$i; /bin/ln -s a$i b$i; /bin/cat a$i 2>/dev/null || true; /bin/cat b$i/x 2>/dev/null || true
	/bin/rm a$i b$i; /bin/ln -s c$i/e l$i; /bin/chmod 700 c$i; other /bin/ls l$i/; /bin/chmod 711 c$i; other /bin/ls l$i/
done
