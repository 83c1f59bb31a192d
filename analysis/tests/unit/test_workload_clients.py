"""The clients of C2007 against a server with its own counts of mails and requests."""

import asyncio
import json
import threading
from collections import Counter
from contextlib import suppress

from spoolscope.lab.workloads.native import call, command

MAIL = b"Subject: x\r\n\r\n..a line with a dot\r\n"


def _till_the_end(talk):
    """Allow a client to close the connection at any time."""

    async def served(reader, writer):
        with suppress(ConnectionError, IndexError):
            await talk(reader, writer)
        writer.close()

    return served


class Server:
    """SMTP and POP3 server in a thread; each mailbox has seven mails, some users are refused."""

    def __init__(self):
        self.counts = Counter()
        self.ports = {}
        self._servers = []
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._begin())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._finish())
        self._loop.close()

    async def _finish(self):
        for server in self._servers:
            server.close()
        talks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    async def _begin(self):
        for name, talk in (("smtp", self._smtp), ("pop3", self._pop3)):
            server = await asyncio.start_server(_till_the_end(talk), "127.0.0.1", 0)
            self._servers.append(server)
            self.ports[name] = server.sockets[0].getsockname()[1]

    async def _smtp(self, reader, writer):
        writer.write(b"220 ready\r\n")
        self.counts["connections"] += 1
        while line := await reader.readline():
            verb = line.split()[0]
            self.counts[verb] += 1
            if verb == b"EHLO":
                writer.write(b"250-one\r\n250 two\r\n")
            elif verb == b"DATA":
                writer.write(b"354 go on\r\n")
                size = 0
                while (text := await reader.readline()) != b".\r\n":
                    size += len(text)
                self.counts["largest"] = max(self.counts["largest"], size)
                writer.write(b"250 taken\r\n")
            else:
                writer.write(b"250 ok\r\n")

    async def _pop3(self, reader, writer):
        writer.write(b"+OK ready\r\n")
        while line := await reader.readline():
            verb = line.split()[0]
            self.counts[verb] += 1
            if verb == b"USER" and line.strip().endswith(b"1"):
                self.counts["refused"] += 1
                writer.write(b"-ERR not you\r\n")
            elif verb == b"STAT":
                writer.write(b"+OK 7 700\r\n")
            elif verb == b"RETR":
                writer.write(b"+OK follows\r\n" + MAIL + b".\r\n")
            else:
                writer.write(b"+OK\r\n")

    def end(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def test_what_clients_report_is_what_the_server_saw(tmp_path):
    server = Server()
    report = tmp_path / "report"
    ports = ("--smtp", str(server.ports["smtp"]), "--pop3", str(server.ports["pop3"]))
    people = ("--users", "4", "--password", "p", "--login", "{}", "--domain", "example.com")
    times = ("--warm-up", "0", "--seconds", "1", "--seed", "3", "--report", str(report))
    call(command("clients", *ports, *people, *times))
    server.end()
    told, seen = json.loads(report.read_text()), server.counts
    # A transaction that ends after the time does not count: at most one of each of five processes.
    assert seen[b"DATA"] - 5 <= told["laps"]["smtp"]["n"] <= seen[b"DATA"]
    assert seen["refused"] - 5 <= told["counts"]["pop_errors"] <= seen["refused"]
    sessions = seen[b"STAT"]
    assert sessions - 5 <= told["laps"]["pop"]["n"] <= sessions
    # Five of the seven mails, at most three mails a connection, 5 kB a mail and its line ends.
    assert told["counts"]["pop_mails"] == 5 * told["laps"]["pop"]["n"]
    assert told["counts"]["pop_bytes"] == len(MAIL) * told["counts"]["pop_mails"]
    assert seen[b"DATA"] <= 3 * seen["connections"] <= seen[b"DATA"] + 3 * 5
    assert seen["largest"] <= 5120 + 400
    assert told["processes"]["postal"]["n"] == told["processes"]["rabid"]["n"] == 5
    assert 0 < told["counts"]["busy_ticks"] <= told["counts"]["all_ticks"]
