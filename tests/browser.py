"""A headless Chromium, driven over two pipes: just enough to test a page.

It speaks the DevTools protocol, JSON messages with a zero byte after each.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--remote-debugging-pipe", "--force-color-profile=srgb"),
)


def find_browser() -> str | None:
    """The path of Chromium, or None; the environment variable CHROME can name another."""
    for name in (os.environ.get("CHROME", ""), *_NAMES):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def _pipe(theirs: int) -> tuple[int, int]:
    """Two ends of a pipe: theirs, with a number above those to which it is moved, and ours."""
    ends = os.pipe()
    high = fcntl.fcntl(ends[theirs], fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(ends[theirs])
    return high, ends[1 - theirs]


class Browser:
    """One page of one browser; a context manager that leaves no process behind."""

    def __init__(self, program: str, patience: float = 30.0) -> None:
        self._patience = patience
        self._home = tempfile.TemporaryDirectory(prefix="densehash-", ignore_cleanup_errors=True)
        theirs_in, self._out = _pipe(0)
        theirs_out, self._in = _pipe(1)
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        # The browser reads from 3 and writes to 4. It leads its own group of processes.
        self._pid = os.posix_spawn(
            program,
            [program, *_FLAGS, f"--user-data-dir={self._home.name}", "about:blank"],
            os.environ,
            file_actions=[
                *null,
                (os.POSIX_SPAWN_DUP2, theirs_in, 3),
                (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            ],
            setpgroup=0,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._count = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and all that it started."""
        for end in (self._in, self._out):
            with contextlib.suppress(OSError):
                os.close(end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._home.cleanup()

    def _attach(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each for each in targets if each["type"] == "page")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + self._patience
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(end - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"the browser said nothing for {self._patience} s")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise ConnectionError("the browser ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    # --- what a reader does ---

    def open(self, path: Path) -> None:
        """Open a file, and clear what was noted for the last one."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait(f"location.href === {json.dumps(path.as_uri())}")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, which may be a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + self._patience
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"still not true: {expression}; {self.complaints()}")
            time.sleep(0.02)

    def find(self, selector: str) -> tuple[float, float]:
        """Scroll to the first element that matches, and return the position of its middle."""
        x, y = self.evaluate(
            "(async () => {"
            f"const found = document.querySelector({json.dumps(selector)});"
            "found.scrollIntoView({block: 'center', behavior: 'instant'});"
            # After two frames, the page has reacted to scrolling.
            "for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"
            "const {x, y, width, height} = found.getBoundingClientRect();"
            "return [x + width / 2, y + height / 2]; })()"
        )
        return x, y

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that matches."""
        x, y = self.find(selector)
        shared = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **shared)

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str, text: str = "") -> None:
        """Press a key."""
        code = {"Enter": 13, "Tab": 9, " ": 32}[key]
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def resize(self, width: int, height: int) -> None:
        """Set the width and height of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark pages."""
        self.call(
            "Emulation.setEmulatedMedia",
            media="",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    # --- what the browser noted ---

    def complaints(self) -> list[str]:
        """Errors and warnings of scripts, of the page's policy and of the browser."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] != "log":
                found.append(" ".join(str(each.get("value")) for each in params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] != "info":
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """The addresses of all requests."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]
