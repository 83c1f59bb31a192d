"""The HTTP endpoint that is scraped. It serves prepared text, so a scrape costs no reading."""

import errno
import ipaddress
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from spoolscope.exporter.rendering import OPENMETRICS, PLAIN
from spoolscope.traces.errors import USAGE, SpoolscopeError

PATH = "/metrics"
PATIENCE_S = 10.0
"""Seconds after which a client that sends nothing is left."""


class Page:
    """The text of the last minute in both forms; threads take and replace it as a whole."""

    def __init__(self) -> None:
        self.texts: Mapping[str, bytes] = {OPENMETRICS: b"# EOF\n", PLAIN: b""}


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server_version = "spoolscope"
    sys_version = ""
    page: Page

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        if path == PATH:
            asked = self.headers.get("Accept", "")
            form = OPENMETRICS if "application/openmetrics-text" in asked else PLAIN
            self._answer(HTTPStatus.OK, form, self.page.texts[form])
        elif path == "/":
            self._answer(HTTPStatus.OK, PLAIN, f"spoolscope exporter: {PATH}\n".encode())
        else:
            self._answer(HTTPStatus.NOT_FOUND, PLAIN, f"only {PATH} is here\n".encode())

    def do_HEAD(self) -> None:
        """Answer with the head alone."""
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base
        """Drop the line of each request."""

    def _answer(self, status: HTTPStatus, form: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", form)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def handle_error(self, request: object, client_address: object) -> None:
        """Drop errors of clients that went away."""


class _Server6(_Server):
    address_family = 10  # AF_INET6


@contextmanager
def serving(address: str, page: Page) -> Iterator[int]:
    """Serve a page from a thread while the block runs; yield the port.

    Args:
        address: IP:PORT; an IPv6 address stands in brackets. Port 0 is any free one.
        page: What to serve.

    Raises:
        SpoolscopeError: the address is none, or in use.
    """
    host, port = _parsed(address)
    handler = type("_OwnHandler", (_Handler,), {"page": page})
    kind = _Server6 if ":" in host else _Server
    try:
        server = kind((host, port), handler)
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        raise SpoolscopeError(
            f"{address} is in use" if used else f"{address}: {error.strerror or error}",
            remedy="give another --listen, or end what listens there"
            if used
            else "give --listen an address of this machine",
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
        number = int(port)
        if not 0 <= number <= 0xFFFF:
            raise ValueError(port)
    except ValueError:
        raise SpoolscopeError(
            f"{address!r} is no address such as 127.0.0.1:9766",
            remedy="give --listen IP:PORT",
            exit_code=USAGE,
        ) from None
    return host, number
