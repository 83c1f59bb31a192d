"""Mixed load for the rig: SMTP deliveries, IMAP sessions, POP3 sessions; prints JSON counts.

SMTP is an open loop with Poisson arrivals: a slow server does not slow the senders down.
"""

import argparse
import collections
import imaplib
import json
import poplib
import queue
import random
import re
import smtplib
import threading
import time
from collections.abc import Callable

import messages

HOST, SMTP, IMAP, POP3 = "127.0.0.1", 10025, 10143, 10110
PASSWORD = "spool"
HEADERS = "(UID RFC822.SIZE FLAGS BODY.PEEK[HEADER.FIELDS (From To Subject Date)])"
ACTIONS = {
    "read": 30, "flag": 12, "append": 10, "move": 10, "delete": 10, "copy": 4, "search": 5,
    "status": 6, "folder": 6, "resync": 8, "idle": 4, "mailbox": 2,
}  # fmt: skip
imaplib.Commands.setdefault("MOVE", ("SELECTED",))

Counts = collections.Counter[str]


class Imap:
    """One user's session: sync the mailbox, some actions with pauses, log out."""

    def __init__(self, rng: random.Random, users: int, counts: Counts) -> None:
        self.rng, self.counts = rng, counts
        self.user = messages.user(1 + int(users * rng.random() ** 1.5))
        self.server = imaplib.IMAP4(HOST, IMAP, 30)
        self.uids: list[str] = []

    def run(self, until: float, think_s: float) -> None:
        self.server.login(self.user, PASSWORD)
        self.server.list()
        self.status()
        self.resync()
        for _ in range(self.rng.randint(4, 20)):
            if time.monotonic() > until:
                break
            time.sleep(self.rng.expovariate(1 / think_s))
            action = self.rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
            getattr(self, action)()
            self.counts[action] += 1
        self.server.logout()
        self.counts["imap sessions"] += 1

    def uid(self, *command: str) -> list[bytes]:
        kind, data = self.server.uid(*command)
        self.counts["imap commands"] += 1
        if kind != "OK":
            self.counts[f"{kind} {command[0]}"] += 1
        return data

    def some(self) -> str | None:
        return self.rng.choice(self.uids) if self.uids else None

    def select(self, mailbox: str) -> None:
        self.server.select(mailbox)
        flat = [p for line in self.uid("FETCH", "1:*", "(UID FLAGS)") for p in parts(line)]
        self.uids = [u.decode() for p in flat for u in re.findall(rb"UID (\d+)", p)]

    def resync(self) -> None:
        self.select("INBOX")
        if self.uids:
            self.uid("FETCH", ",".join(self.uids[-15:]), HEADERS)

    def read(self) -> None:
        if uid := self.some():
            self.uid("FETCH", uid, "(BODYSTRUCTURE)")
            self.uid("FETCH", uid, "(BODY[])")

    def flag(self) -> None:
        if uid := self.some():
            self.uid("STORE", uid, self.rng.choice("+-") + "FLAGS", r"(\Flagged)")

    def append(self) -> None:
        body = messages.message(self.rng, self.user, messages.user(1))
        self.server.append("Sent", r"(\Seen)", None, body)

    def move(self) -> None:
        self.take("MOVE", "Archive")

    def copy(self) -> None:
        if uid := self.some():
            self.uid("COPY", uid, "Archive")

    def delete(self) -> None:
        self.take("MOVE", "Trash")
        if self.rng.random() < 0.2:
            self.select("Trash")
            if self.uids:
                self.uid("STORE", "1:*", "+FLAGS.SILENT", r"(\Deleted)")
                self.server.expunge()
            self.resync()

    def take(self, command: str, mailbox: str) -> None:
        if uid := self.some():
            self.uid(command, uid, mailbox)
            self.uids.remove(uid)

    def search(self) -> None:
        self.uid("SEARCH", "SUBJECT", self.rng.choice(messages.WORDS))

    def status(self) -> None:
        for mailbox in ("Sent", "Trash", "Archive"):
            self.server.status(mailbox, "(MESSAGES UIDNEXT UNSEEN)")

    def folder(self) -> None:
        self.select(self.rng.choice(("Sent", "Archive")))
        self.resync()

    def idle(self) -> None:
        self.server.send(b"I1 IDLE\r\n")
        self.server.readline()
        time.sleep(self.rng.uniform(0.5, 2))
        self.server.send(b"DONE\r\n")
        while not self.server.readline().startswith(b"I1"):
            pass

    def mailbox(self) -> None:
        name = f"list{self.rng.randrange(10**6)}"
        self.server.create(name)
        self.server.rename(name, name + "b")
        self.server.delete(name + "b")


def parts(line: object) -> list[bytes]:
    """Return the byte strings of one line of an imaplib answer."""
    pieces = line if isinstance(line, tuple) else (line,)
    return [p for p in pieces if isinstance(p, bytes)]


def pop3_session(rng: random.Random, users: int, counts: Counts) -> None:
    """Fetch a few messages, delete some of them."""
    server = poplib.POP3(HOST, POP3, 30)
    server.user(messages.user(rng.randint(1, users)))
    server.pass_(PASSWORD)
    n, _ = server.stat()
    server.uidl()
    for number in rng.sample(range(1, n + 1), min(n, 4)):
        try:
            server.retr(number)
            if rng.random() < 0.5:
                server.dele(number)
        except poplib.error_proto as refused:
            if "expunged" not in str(refused):
                raise
            counts["pop3 expunged"] += 1  # an IMAP session was first, as happens to real ones
    server.quit()
    counts["pop3 sessions"] += 1


def smtp_worker(
    arrivals: "queue.Queue[bool]", rng: random.Random, users: int, counts: Counts
) -> None:
    """Send one message for every arrival, a few per connection."""
    server, left = None, 0
    while arrivals.get():
        sender, recipient = (messages.user(rng.randint(1, users)) for _ in range(2))
        if server is None or left == 0:
            if server:
                server.quit()
            server, left = smtplib.SMTP(HOST, SMTP, timeout=30), rng.randint(1, 4)
        server.sendmail(sender, [recipient], messages.message(rng, sender, recipient))
        left -= 1
        counts["messages"] += 1
    if server:
        server.quit()


def repeat(
    session: Callable[[], None], until: float, pause: Callable[[], float], counts: Counts
) -> None:
    """Run sessions one after another until the time is over; a failed one is counted."""
    time.sleep(pause() / 2)
    while time.monotonic() < until:
        try:
            session()
        except (OSError, imaplib.IMAP4.error, poplib.error_proto) as error:
            counts[f"failed: {error!r:.80}"] += 1
        time.sleep(min(pause(), max(0.0, until - time.monotonic())))


def workers(
    options: argparse.Namespace, until: float, arrivals: "queue.Queue[bool]", counts: Counts
) -> list[threading.Thread]:
    """Return one thread for every client."""
    made = []

    def add(target: Callable[..., None], *arguments: object) -> None:
        made.append(threading.Thread(target=target, args=arguments))

    for n in range(options.smtp):
        add(smtp_worker, arrivals, random.Random(100 + n), options.users, counts)
    for n in range(options.imap):
        rng = random.Random(200 + n)
        add(
            repeat,
            lambda rng=rng: Imap(rng, options.users, counts).run(until, options.think),
            until, lambda rng=rng: rng.expovariate(2), counts,
        )  # fmt: skip
    for n in range(options.pop3):
        rng = random.Random(300 + n)
        add(
            repeat,
            lambda rng=rng: pop3_session(rng, options.users, counts),
            until, lambda rng=rng: rng.expovariate(0.8), counts,
        )  # fmt: skip
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=29)
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--rate", type=float, default=6, help="messages a second")
    parser.add_argument("--smtp", type=int, default=4, help="connections")
    parser.add_argument("--imap", type=int, default=16, help="sessions at once")
    parser.add_argument("--pop3", type=int, default=3, help="sessions at once")
    parser.add_argument("--think", type=float, default=0.5, help="mean pause between actions, s")
    options = parser.parse_args()
    counts: Counts = collections.Counter()
    arrivals: queue.Queue[bool] = queue.Queue()
    until = time.monotonic() + options.seconds
    threads = workers(options, until, arrivals, counts)
    for thread in threads:
        thread.start()
    rng = random.Random(1)
    while time.monotonic() < until:
        time.sleep(rng.expovariate(options.rate))
        arrivals.put(True)
    for _ in range(options.smtp):
        arrivals.put(False)
    for thread in threads:
        thread.join()
    print(json.dumps(dict(sorted(counts.items()))))


if __name__ == "__main__":
    main()
