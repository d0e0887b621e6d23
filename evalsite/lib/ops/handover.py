"""Connections that the web server and the process of the gateway hand over to each other.

Both have one port. The web server reads the head of a request; a request to the gateway, and its connection, then go
through a pair of sockets to the gateway's process. A request to a page on a connection that stayed open, as proxies
send them, goes back. `up` keeps the pair open, so requests wait while a process is replaced.
"""

from __future__ import annotations

import os
import socket

VARIABLE = "EVALSITE_HANDOVER"  # Its value is the number of this process's end of the pair.
ROOT = b"/gateway/"
MAX_BYTES = 2**18  # More than the web server reads before it has the head of a request.


def open_pair() -> tuple[socket.socket, socket.socket]:
    """Return the ends of the web server and of the gateway."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_BYTES)
        end.setblocking(False)
    return ends


def open_own_end() -> socket.socket | None:
    """Return this process's end of the pair, or None if it was started without one."""
    number = os.environ.get(VARIABLE)
    if number is None:
        return None
    end = socket.socket(fileno=os.dup(int(number)))
    end.setblocking(False)
    return end


def is_for_gateway(received: bytes | bytearray) -> bool:
    """Return whether these first bytes of a request name an address of the gateway."""
    return received[:40].partition(b" ")[2].startswith(ROOT)


def send_connection(end: socket.socket, client: int, received: bytes) -> bool:
    """Hand a connection over with the bytes that have arrived. Return False if the other process takes no more."""
    try:
        socket.send_fds(end, [received or b" "], [client])
    except OSError:
        return False
    return True


def receive_connection(end: socket.socket) -> tuple[socket.socket, bytes] | None:
    """Return the next connection with its bytes, or None if there is none."""
    try:
        received, descriptors, _, _ = socket.recv_fds(end, MAX_BYTES, 1)
    except OSError:
        return None
    if not descriptors:
        return None
    client = socket.socket(fileno=descriptors[0])
    client.setblocking(False)
    return client, received
