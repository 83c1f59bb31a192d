"""Opens a file in DIRECTORY and sends it to a child, which goes on at the parent's position.

The parent has closed it before the child uses it. Both look for programs that do not exist.
"""

import os
import socket
import sys

directory = sys.argv[1]
here, there = socket.socketpair()
child = os.fork()
if child == 0:
    _, (fd,), _, _ = socket.recv_fds(there, 10, 1)
    here.recv(1)
    os.write(fd, bytes(100))
    os.write(fd, bytes(50))
    assert os.lseek(fd, 0, os.SEEK_CUR) == 160
    os._exit(0)
fd = os.open(f"{directory}/passed", os.O_CREAT | os.O_WRONLY, 0o600)
os.write(fd, bytes(10))
socket.send_fds(here, [b"x"], [fd])
os.close(fd)
there.send(b"y")
assert os.waitpid(child, 0)[1] == 0
for missing in (f"{directory}/no-such-program", "/no-such-program"):
    try:
        os.execv(missing, ["x"])
    except FileNotFoundError:
        continue
