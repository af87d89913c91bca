"""A fake engine behind the HTTP layer (fake_app.c), and what speaks to it over raw sockets."""

import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import time

APP = os.environ.get("WEIR_FAKE_APP", "build/tests/http/fake_app")
HOST = "127.0.0.1"
SLOW = 5 if os.environ.get("WEIR_SANITIZED") else 1  # patience with instrumented builds
PATIENCE_S = 30  # with what comes at once, on a machine that others keep busy

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Server:
    def __init__(self, **options):
        options = {"request": 600_000, "idle": 600_000, **options}  # nobody is let go for being late
        args = [APP] + [f"{k}={v}" for k, v in options.items()]
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.url = f"http://{HOST}:{self.port}"

    def dial(self, text=None):
        s = socket.create_connection((HOST, self.port), timeout=PATIENCE_S)
        if text is not None:
            s.sendall(text if isinstance(text, bytes) else text.encode())
        return s

    def get(self, path):
        return self.dial(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")

    def stats(self):
        """The loop thread makes them itself, after all that happened to its sockets before."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                with self.dial("GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
                    answer = read_all(s)
            except ssl.SSLError:
                answer = b""
            if answer.startswith(b"HTTP/1.1 200 "):  # it counts as a connection itself, and has to be in time
                return json.loads(answer.split(b"\r\n\r\n", 1)[1])
            time.sleep(0.05)
        raise AssertionError(answer)

    def wait(self, condition):
        """Until it holds of the stats."""
        end = time.monotonic() + PATIENCE_S
        while not condition(st := self.stats()):
            assert time.monotonic() < end, st
            time.sleep(0.01)

    def wait_open(self, n):
        self.wait(lambda st: st["begin"] - st["end"] - 1 == n)  # less the one that asks

    def wait_idle(self):
        """Until the loop thread has nothing left to do for the sockets, and sleeps."""
        end, n, last = time.monotonic() + PATIENCE_S, 0, None
        while n < 5:
            assert time.monotonic() < end
            time.sleep(0.02)
            with open(f"/proc/{self.process.pid}/status") as f:
                now = [line for line in f if line.startswith(("State:\tS", "voluntary_ctxt"))]
            n = n + 1 if now == last and len(now) == 2 else 0
            last = now

    def loop_cpu_s(self):
        """Of the loop thread, which is the first; the fake engine's wakes every millisecond."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, out


def read_all(s):
    pieces = []
    try:
        while piece := s.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def read_until(s, what):
    data = b""
    while what not in data:
        piece = s.recv(65536)
        if not piece:
            break
        data += piece
    return data


def pattern(n):
    unit = bytes(ord("a") + i * 7 % 26 for i in range(26))
    return (unit * (n // 26 + 1))[:n]
