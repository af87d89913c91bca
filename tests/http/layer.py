"""A fake engine behind the HTTP layer (fake_app.c), and what speaks to it over raw sockets."""

import json
import os
import resource
import signal
import socket
import subprocess
import time

APP = os.environ.get("WEIR_FAKE_APP", "build/tests/http/fake_app")
HOST = "127.0.0.1"
SLOW = 5 if os.environ.get("WEIR_SANITIZED") else 1  # patience with instrumented builds

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Server:
    def __init__(self, **options):
        args = [APP] + [f"{k}={v}" for k, v in options.items()]
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.url = f"http://{HOST}:{self.port}"

    def dial(self, text=None):
        s = socket.create_connection((HOST, self.port), timeout=10)
        if text is not None:
            s.sendall(text if isinstance(text, bytes) else text.encode())
        return s

    def get(self, path):
        return self.dial(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")

    def stats(self):
        while True:
            with self.dial("GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as s:
                head, body = read_all(s).split(b"\r\n\r\n", 1)
            if b" 503 " not in head:  # it counts as a connection itself
                return json.loads(body)
            time.sleep(0.05)

    def open_calls(self):
        st = self.stats()
        return st["begin"] - st["end"] - 1  # less the one that asks

    def wait_open(self, n, seconds=1.0):
        end = time.time() + seconds * SLOW
        while time.time() < end:
            if self.open_calls() == n:
                return True
            time.sleep(0.01)
        return False

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=20)
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
