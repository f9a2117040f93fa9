"""One HTTP request on a connection of its own, as light as it can be: what arrives is kept with its time and read
after the load has ended (events.py), so that the client takes next to nothing of the machine it measures.
"""

import asyncio
import contextlib
import dataclasses
import json
import socket
import time
import urllib.parse

DONE = b"data: [DONE]"
EVENT = b"data: "


@dataclasses.dataclass
class Raw:
    """What was sent and what came back. Times are of time.perf_counter(), in seconds."""

    arrived: float            # when it was due; the load may have held it back behind others
    sent: float = 0.0
    ended: float = 0.0
    pieces: list = dataclasses.field(default_factory=list)  # (time, bytes), as the kernel gave them
    error: str = ""           # of the connection or the time limit; "" when the server ended it
    left: bool = False        # we closed it before its end, as was planned
    leave: object = None      # closes it while it runs


@dataclasses.dataclass(frozen=True)
class Manners:
    """How the client behaves: by default it reads all as it comes."""

    leave_after: int = -1        # closes the connection after so many events; 0: as soon as it has sent
    half_close: bool = False     # leaves by closing its sending side only
    sips: tuple = ()             # (bytes of receive buffer, seconds of pause after each piece): a slow reader


class Exchange(asyncio.Protocol):
    def __init__(self, head, raw, manners):
        self.head, self.raw, self.manners = head, raw, manners
        self.events = 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        if self.manners.sips:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.manners.sips[0])
        transport.write(self.head)
        if self.manners.leave_after == 0:
            self.leave()

    def data_received(self, data):
        self.raw.pieces.append((time.perf_counter(), data))
        if self.manners.leave_after > 0:
            self.events += data.count(EVENT)
            if self.events >= self.manners.leave_after:
                self.leave()
        elif self.manners.sips:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(self.manners.sips[1], self.resume)

    def resume(self):
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def leave(self):
        if self.raw.left:
            return
        self.raw.left = True
        if self.manners.half_close:
            self.transport.write_eof()
        else:
            self.transport.abort()

    def connection_lost(self, exception):
        self.raw.ended = time.perf_counter()
        if exception is not None and not self.raw.left:
            self.raw.error = repr(exception)
        if not self.ended.done():
            self.ended.set_result(None)


def request_bytes(url, path, body, headers=()):
    host = urllib.parse.urlsplit(url).netloc
    text = json.dumps(body, separators=(",", ":")).encode()
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Connection: close",
             f"Content-Length: {len(text)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


async def post(url, path, body, arrived=None, timeout=600.0, manners=Manners(), headers=(), raw=None):
    """Sends `body` and waits until the server has closed the connection. Never raises for what the server does. Fills
    `raw`, for one who watches, or a new one."""
    head = request_bytes(url, path, body, headers)
    address = urllib.parse.urlsplit(url)
    raw = raw or Raw(0.0)
    raw.sent = time.perf_counter()
    raw.arrived = arrived if arrived is not None else raw.sent
    try:
        transport, exchange = await asyncio.get_running_loop().create_connection(
            lambda: Exchange(head, raw, manners), address.hostname, address.port)
    except OSError as error:
        raw.error, raw.ended = repr(error), time.perf_counter()
        return raw
    raw.leave = exchange.leave
    try:
        await asyncio.wait_for(asyncio.shield(exchange.ended), timeout)
    except asyncio.TimeoutError:
        raw.error, raw.ended = f"no end within {timeout:.0f} s", time.perf_counter()
    finally:
        with contextlib.suppress(Exception):
            transport.abort()
    return raw
