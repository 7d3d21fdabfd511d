"""Servers of one file on this machine, which cut connections, lie and change as a test wants."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DATES = {"old": "Mon, 01 Jan 2024 00:00:00 GMT", "new": "Tue, 02 Jan 2024 00:00:00 GMT"}


class FileServer:
    """One file, and what to do with the next requests.

    Each request takes the next of ``actions``: a number sends this many bytes and cuts the
    connection, a string is a status or "hang", and None, or the end of the list, answers correctly.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.tag: str | None = '"one"'
        self.date: str | None = DATES["old"]
        self.ranges = True
        self.if_range = True
        self.length = True
        self.actions: list[int | str | None] = []
        self.asked: list[dict[str, str]] = []
        self.url = ""
        self.stopped = threading.Event()

    def next_action(self) -> int | str | None:
        return self.actions.pop(0) if self.actions else None


@contextmanager
def http_server(body: bytes) -> Iterator[FileServer]:
    file = FileServer(body)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            file.asked.append({name.lower(): value for name, value in self.headers.items()})
            self.close_connection = True
            action = file.next_action()
            if action == "hang":
                file.stopped.wait(10)
                return
            if isinstance(action, str) and action.startswith("30"):
                self.send_response(int(action))
                self.send_header("Location", "/moved/data.bin")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if isinstance(action, str):
                self.send_error(int(action))
                return
            start = self.start()
            if start is not None and start >= len(file.body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(file.body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_body(start, action)

        def start(self) -> int | None:
            asked = self.headers.get("Range")
            if asked is None or not file.ranges:
                return None
            condition = self.headers.get("If-Range")
            if file.if_range and condition is not None and condition not in (file.tag, file.date):
                return None
            return int(asked.removeprefix("bytes=").removesuffix("-"))

        def send_body(self, start: int | None, most: int | None) -> None:
            self.send_response(200 if start is None else 206)
            rest = file.body[start or 0 :]
            if start is not None:
                size = len(file.body)
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            if file.length:
                self.send_header("Content-Length", str(len(rest)))
            if file.tag is not None:
                self.send_header("ETag", file.tag)
            if file.date is not None:
                self.send_header("Last-Modified", file.date)
            self.end_headers()
            self.wfile.write(rest if most is None else rest[:most])

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    file.url = f"http://127.0.0.1:{server.server_address[1]}/data.bin"
    with _running(server, file):
        yield file


@contextmanager
def ftp_server(body: bytes) -> Iterator[FileServer]:
    file = FileServer(body)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.start = 0
            self.listener = socket.socket()
            self.say("220 hello")
            while line := self.rfile.readline().decode().strip():
                command, _, argument = line.partition(" ")
                file.asked.append({command: argument})
                if command == "PASV":
                    self.listener.close()
                    self.listener = socket.create_server(("127.0.0.1", 0))
                if command != "RETR" or argument != "folder/data.bin":
                    self.say(self.answer(command, argument))
                elif self.send_body():
                    break
            self.listener.close()

        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def answer(self, command: str, argument: str) -> str:
            known = argument == "folder/data.bin"
            answer = "550 no such thing"
            if command in ("USER", "TYPE"):
                answer = "230 fine"
            elif command == "PASV":
                port = self.listener.getsockname()[1]
                answer = f"227 at (127,0,0,1,{port >> 8},{port & 255})"
            elif command == "SIZE" and known:
                answer = f"213 {len(file.body)}" if file.length else "502 not here"
            elif command == "MDTM" and known and file.date is not None:
                answer = f"213 {file.date}"
            elif command == "REST":
                self.start = int(argument) if file.ranges else 0
                answer = "350 go on" if file.ranges else "502 not here"
            return answer

        def send_body(self) -> bool:
            """Send the file or a part; return whether the connection was cut."""
            data, _ = self.listener.accept()
            with data:
                action = file.next_action()
                if isinstance(action, str):
                    self.say(f"{action} later")
                    return False
                self.say("150 here it comes")
                rest = file.body[self.start :]
                data.sendall(rest if action is None else rest[:action])
            if action is None:
                self.say("226 done")
            return action is not None

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    file.url = f"ftp://127.0.0.1:{server.server_address[1]}/folder/data.bin"
    with _running(server, file):
        yield file


@contextmanager
def _running(server: socketserver.BaseServer, file: FileServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        file.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
