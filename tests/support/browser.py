"""How long Chromium takes for a page, and what it shows: asked over its debugging pipe.

Source: chromedevtools.github.io/devtools-protocol.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile

CHROMIUM = shutil.which("chromium")
_READ, _WRITE = 3, 4  # the descriptors on which Chromium expects the pipe


class Browser:
    """A Chromium without a window; close() ends it."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory()
        its_input, self._commands = os.pipe()
        self._answers, its_output = os.pipe()
        # The shell puts the pipes where they belong, whatever numbers they have here.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" {_READ}<&{its_input} {_WRITE}>&{its_output}', CHROMIUM, "--headless=new",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self._profile.name}"],
            pass_fds=(its_input, its_output), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(its_input)
        os.close(its_output)
        self._number = 0
        self._bytes = b""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")
        self._call("Emulation.setScrollbarsHidden", hidden=True)  # they would hide what is beneath

    def close(self):
        os.close(self._commands)
        os.close(self._answers)
        os.killpg(self._process.pid, signal.SIGKILL)
        # All its processes write to its profile, and all have its output open.
        self._process.communicate()
        self._profile.cleanup()

    def load(self, url, shown):
        """(seconds until the load event, seconds until the JavaScript expression `shown` is true), of a page in a fresh
        document; both since the navigation began."""
        self._call("Page.navigate", url="about:blank")
        return self._open(url, shown)

    def _open(self, url, shown):
        """load() of a page in the process of the one before, if that is of the same host: it takes half as much."""
        self.ask("window.isOfBefore = true")
        self._call("Page.navigate", url=url)
        script = f"""new Promise(resolve => {{
            const look = () => {{
                const load = performance.getEntriesByType("navigation")[0].loadEventEnd;
                if (load > 0 && !window.isOfBefore && ({shown})) resolve([load, performance.now()]);
                else requestAnimationFrame(look);
            }};
            look();
        }})"""
        value = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"]["value"]
        return value[0] / 1000, value[1] / 1000

    def value(self, url, shown, width, expression):
        """What the JavaScript expression gives on the page, when `shown` is true; `width` as for picture()."""
        self._show(url, shown, width, False)
        return self.ask(expression)

    def ask(self, expression):
        """What the JavaScript expression gives on the page that is shown."""
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def picture(self, url, shown, width, dark):
        """The whole page as PNG, when the JavaScript expression `shown` is true; `width` in pixels, up to 400 as a phone."""
        self._show(url, shown, width, dark)
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def _show(self, url, shown, width, dark):
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width <= 400)
        self._call("Emulation.setEmulatedMedia",
                   features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self._open(url, shown)

    def _call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._number:
                continue  # an event
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def _receive(self):
        while b"\0" not in self._bytes:
            more = os.read(self._answers, 1 << 16)
            if not more:
                raise RuntimeError(f"chromium ended with {self._process.wait()}")
            self._bytes += more
        answer, self._bytes = self._bytes.split(b"\0", 1)
        return json.loads(answer)
