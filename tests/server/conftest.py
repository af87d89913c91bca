"""A real `weir serve` for the tests: its own port, its log, a clean end."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build" / "weir"))
MODEL = os.environ.get("WEIR_TEST_MODEL", str(ROOT / "models" / "weir-nano.gguf"))
PATIENCE_S = 300  # with what is soon done, on a machine that others keep busy


def few(n, least):
    """So many, or where every access is watched so few (tests/few.h)."""
    return least if os.environ.get("WEIR_FEW_SHAPES") else n


class Server:
    """One process. `url` is known once it listens; `log` is its stderr so far."""

    def __init__(self, *flags, context=None):
        self.log = ""
        self.url = None
        self.context = context  # of ssl, for a server with a certificate
        flags = [str(f) for f in flags]
        self.process = subprocess.Popen(
            [WEIR, "serve", "-m", MODEL, "--port", "0", *flags],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            env={k: v for k, v in os.environ.items() if k != "WEIR_API_KEY"})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self._wait(lambda: self.url, "to listen")

    def _read(self):
        for line in self.process.stderr:
            self.log += line
            found = re.search(r"listening on (https?://\S+)", line)
            if found:
                self.url = found.group(1)

    def _wait(self, done, what):
        end = time.monotonic() + PATIENCE_S
        while not done():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.reader.join(5)
                pytest.fail(f"waited in vain for the server {what}; its log:\n{self.log}")
            time.sleep(0.02)

    def wait_ready(self):
        """Until it answers, and its log has all that it said before."""
        self._wait(lambda: self.request("GET", "/health")[0] == 200, "to be ready")
        self._wait(lambda: "info: ready\n" in self.log, "to say that it is ready")
        return self

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE_S):
        """-> status, headers, bytes. A body that is not bytes is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        r = urllib.request.Request(self.url + path, data=body, method=method,
                                   headers=headers or {})
        try:
            with urllib.request.urlopen(r, timeout=timeout, context=self.context) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.headers, e.read()

    def json(self, method, path, body=None, status=200, **more):
        got, _, data = self.request(method, path, body, **more)
        assert got == status, data
        return json.loads(data)

    def events(self, path, body):
        """The chunks of a stream; that it ends with [DONE] is checked."""
        status, headers, data = self.request("POST", path, {**body, "stream": True})
        assert status == 200, data
        assert headers["Content-Type"].startswith("text/event-stream")
        lines = [e for e in data.decode().split("\n\n") if e and not e.startswith(":")]
        assert all(e.startswith("data: ") for e in lines), lines
        assert lines[-1] == "data: [DONE]"
        return [json.loads(e[6:]) for e in lines[:-1]]

    def named_events(self, path, body):
        """The data of a stream whose events have names; that those are their types is checked."""
        status, headers, data = self.request("POST", path, {**body, "stream": True})
        assert status == 200, data
        assert headers["Content-Type"].startswith("text/event-stream")
        found = []
        for block in data.decode().split("\n\n"):
            if block and not block.startswith(":"):
                name, line = block.split("\n")
                assert name.startswith("event: ") and line.startswith("data: ")
                found.append(json.loads(line.removeprefix("data: ")))
                assert name == "event: " + found[-1]["type"]
        return found

    def metric(self, name):
        """The value of one sample, by its full name with labels."""
        text = self.request("GET", "/metrics")[2].decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        assert found, f"no {name}"
        return float(found.group(1))

    def wait_log(self, text, n=1):
        """Until stderr has the text n times."""
        self._wait(lambda: self.log.count(text) >= n, f"to say {text!r}")

    def reload(self):
        """SIGHUP, and its lines. What they speak of is in force then."""
        before, n = len(self.log), self.log.count("reload: ")
        self.process.send_signal(signal.SIGHUP)
        self._wait(lambda: self.log.count("reload: ") > n, "to read its files again")
        return self.log[before:]

    def stop(self, expect=0):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.reader.join(60)
        assert code == expect, self.log


@pytest.fixture(scope="session")
def server():
    """Shared by the tests that only ask."""
    s = Server().wait_ready()
    yield s
    s.stop()


@pytest.fixture
def start_server():
    """start_server(flags...): one of one's own; those still running at the end are stopped."""
    started = []

    def start(*flags, **options):
        started.append(Server(*flags, **options))
        return started[-1].wait_ready()

    yield start
    for s in started:
        if s.process.poll() is None:
            s.stop()


@pytest.fixture
def batches(start_server, tmp_path):
    return start_server("--batch-dir", str(tmp_path / "batches"))
