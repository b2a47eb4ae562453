"""Headless Chromium over its debugging pipe (the DevTools protocol on two file descriptors): the standard library alone."""

import base64
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
ANSWER_S = 60


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Failed(AssertionError):
    """Something that was waited for did not come about."""


class Browser:
    """One Chromium with a profile of its own, which goes with it."""

    def __init__(self, executable):
        self.profile = tempfile.TemporaryDirectory(prefix="fluvial-chromium-")
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        arguments = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--no-first-run",
                     "--no-default-browser-check", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync", "--lang=en",
                     "--font-render-hinting=none"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # it refuses to be root with one

        def place_pipes():  # the browser's ends are descriptors 3 and 4
            high = (os.dup2(to_browser, 103), os.dup2(from_browser, 104))
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen([executable, *arguments, "about:blank"], close_fds=False, start_new_session=True,
                                        preexec_fn=place_pipes, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "TZ": "UTC", "LANG": "en_GB.UTF-8"})
        os.close(to_browser)
        os.close(from_browser)
        self.rest = b""
        self.number = 0
        self.listeners = []

    def close(self):
        for descriptor in (self.write, self.read):
            os.close(descriptor)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.profile.name, ignore_errors=True)

    def ask(self, method, session=None, **parameters):
        """The answer's result; what else arrives meanwhile goes to the listeners."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        end = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(end)
            if answer.get("id") != self.number:
                continue
            if "error" in answer:
                raise Failed(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def listen(self):
        """Takes what has arrived."""
        while b"\0" in self.rest or select.select([self.read], [], [], 0)[0]:
            self._next(time.monotonic() + ANSWER_S)

    def _next(self, end):
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], max(0, end - time.monotonic()))[0]:
                raise Failed("Chromium does not answer")
            block = os.read(self.read, 1 << 20)
            if not block:
                raise Failed("Chromium has ended")
            self.rest += block
        line, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(line)
        for listener in self.listeners:
            listener(message)
        return message


class Page:
    """A tab. Remembers what the page complains of."""

    def __init__(self, browser, width=1440, height=900, scheme="light", phone=False):
        self.browser = browser
        self.errors = []  # exceptions, console.error(), what could not be loaded or was forbidden
        self.context = browser.ask("Target.createBrowserContext")["browserContextId"]
        target = browser.ask("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.listeners.append(self._hear)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(f"{domain}.enable")
        self.look(width, height, scheme, phone)

    def close(self):
        self.browser.listeners.remove(self._hear)
        self.browser.ask("Target.disposeBrowserContext", browserContextId=self.context)

    def ask(self, method, **parameters):
        return self.browser.ask(method, session=self.session, **parameters)

    def _hear(self, message):
        if message.get("sessionId") != self.session:
            return
        method, told = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(value.get("value", value.get("description"))) for value in told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def expect_no_errors(self):
        """The browser notes each 404; these two are an answer: no round is open, a round has no spans."""
        optional = r"404 .*/v1/rounds/(open|\d+/timeline)\?run=\d+$"
        wrong = [error for error in self.errors if not re.search(optional, error)]
        assert wrong == [], wrong

    def look(self, width, height, scheme="light", phone=False, motion="no-preference"):
        self.width, self.height = width, height
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                 mobile=phone)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                         {"name": "prefers-reduced-motion", "value": motion}])

    def go(self, address):
        """Returns the main document's status."""
        statuses = []

        def hear(message):
            told = message.get("params", {})
            if message.get("method") == "Network.responseReceived" and told.get("type") == "Document":
                statuses.append(told["response"]["status"])

        self.browser.listeners.append(hear)
        self.ask("Page.navigate", url=address)
        until("the page to be there", lambda: statuses and self._is_complete())
        self.browser.listeners.remove(hear)
        return statuses[0]

    def _is_complete(self):
        try:
            return self.value("document.readyState") == "complete"
        except Failed:  # it goes on to another page at this moment, as from the one-time address
            return False

    def value(self, expression):
        """Of JavaScript, awaited."""
        answer = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise Failed(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def text(self, selector="body"):
        return self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def wait_text(self, text, selector="body", limit_s=60):
        until(f"{text!r} in {selector}", lambda: text in self.text(selector), limit_s, lambda: self.text(selector))

    def wait(self, what, expression, limit_s=60):
        until(what, lambda: self.value(expression), limit_s, lambda: self.text())

    def click(self, selector):
        """As a person does: once it is there and lies still, where it is, which has to be on top."""
        place = []

        def lies_still():
            place[:] = [self.value(f"""(async () => {{
                const element = document.querySelector({json.dumps(selector)});
                if (!element) return 'it is not there';
                element.scrollIntoView({{block: 'center', behavior: 'instant'}});
                const before = element.getBoundingClientRect();
                await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
                const box = element.getBoundingClientRect();
                if (box.y !== before.y || box.x !== before.x) return 'it moves';
                const at = [box.x + box.width / 2, box.y + box.height / 2];
                const top = document.elementFromPoint(...at);
                return element === top || element.contains(top) ? at : `covered by ${{top?.outerHTML?.slice(0, 200)}}`;
            }})()""")]
            return isinstance(place[0], list)

        until(f"{selector} to be clickable", lies_still, 30, lambda: place[0])
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=place[0][0], y=place[0][1], button="left", clickCount=1)

    def click_for(self, selector, what, expression):
        """Clicks until the expression holds: a page that moves just then may take a click away from under the hand."""

        def holds():
            if not self.value(f"!!({expression})"):
                self.click(selector)
            return self.value(f"!!({expression})")

        until(what, holds)

    def key(self, key, code=None, text=""):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, text=text if kind == "keyDown" else "",
                     windowsVirtualKeyCode={"Tab": 9, "Escape": 27, "Enter": 13}.get(key, 0))

    def picture(self, path, whole=True):
        size = {}
        if whole:
            box = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            size = {"captureBeyondViewport": True,
                    "clip": {"x": 0, "y": 0, "width": self.width, "height": box["height"], "scale": 1}}
        data = self.ask("Page.captureScreenshot", format="png", **size)["data"]
        path.write_bytes(base64.b64decode(data))


def until(what, holds, limit_s=60, otherwise=None):
    """Looks again and again. What is waited for is an event of other processes, so the limit only ends a failed test."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise Failed(f"waited {limit_s} s for {what}" + (f"; there is: {otherwise()}" if otherwise else ""))
        time.sleep(0.05)
