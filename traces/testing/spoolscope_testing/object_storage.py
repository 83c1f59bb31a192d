"""An S3 server of its own on loopback (moto's), for tests of object storage."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

START_S = 30


@dataclass(frozen=True)
class ObjectStorage:
    """A running server.

    Attributes:
        endpoint: Its URL.
    """

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which programs find it, and credentials that it takes."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def bucket(self, name: str) -> str:
        """Make a bucket, and return its URL."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request):
            return f"s3://{name}"


@contextmanager
def object_storage() -> Iterator[ObjectStorage]:
    """Run a server while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        storage = ObjectStorage(f"http://127.0.0.1:{port}")
        _wait_for(storage, server)
        yield storage
    finally:
        server.kill()
        server.wait()


def _wait_for(storage: ObjectStorage, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(storage.endpoint):
                return
        except urllib.error.URLError:
            if server.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.1)
