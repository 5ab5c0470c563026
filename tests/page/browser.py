"""Runs headless Chromium, controlled through its DevTools protocol over two pipes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

FLAGS = (
    "--headless --window-size=1200,900 --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --remote-debugging-pipe"
).split()


def installed() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """A browser with one tab."""

    def __init__(self, profile: Path) -> None:
        its_input, self._to = os.pipe()
        self._from, its_output = os.pipe()
        command = [installed(), *FLAGS, f"--user-data-dir={profile}"]
        script = f'exec "$@" 3<&{its_input} 4>&{its_output}'
        self._process = subprocess.Popen(
            ["sh", "-c", script, "sh", *command], pass_fds=(its_input, its_output), stderr=subprocess.DEVNULL
        )
        os.close(its_input)
        os.close(its_output)
        self._rest, self._number, self._session, self.events = b"", 0, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> dict:
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 16)
            if not more:
                raise RuntimeError("the browser ended")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def send(self, method: str, **params) -> dict:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def open(self, page: Path | str) -> None:
        self.events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self._read())

    def value(self, expression: str):
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, key: str) -> None:
        code = {"Enter": 13, "Escape": 27, "ArrowRight": 39}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list:
        """Return errors and warnings of the page, and requests for other resources."""
        found = [
            each["params"]
            for each in self.events
            if each.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        ]
        asked = [each["params"]["request"] for each in self.events if each.get("method") == "Network.requestWillBeSent"]
        return found + asked[1:]
