"""Servers on loopback in a thread of the tests' process."""

import threading
from contextlib import contextmanager


@contextmanager
def serve(server):
    """Run this server of the socketserver module for the block. Its end takes 10 ms, by default half a second."""
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
