"""A mirror on loopback that serves well or badly, as its path says."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT = bytes(range(256)) * 2000


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind = self.path.split("/")[1]
        self.server.asked.append(kind)  # type: ignore[attr-defined]
        if kind == "absent":
            self.send_error(404)
            return
        if kind == "failing":
            self.send_error(503)
            return
        if kind == "silent":
            self.server.release.wait(30)  # type: ignore[attr-defined]
            return
        body = CONTENT
        if kind == "corrupt":
            body = b"!" + CONTENT[1:]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind in ("short", "stalling"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if kind == "stalling":
                self.server.release.wait(30)  # type: ignore[attr-defined]
            self.close_connection = True
            return
        if kind == "slow":
            self.server.release.wait(0.5)  # type: ignore[attr-defined]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def mirror() -> Iterator[tuple[str, list[str]]]:
    """Its address, and the list of what it was asked for: `<address>/<kind>/file`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.asked = []  # type: ignore[attr-defined]
    server.release = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.asked  # type: ignore[attr-defined]
    finally:
        server.release.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()
