#!/usr/bin/env python3
"""Eight chats at once against one server: demo.py PATH_OF_WEIR

Starts the server on the built-in model, streams eight answers side by side, then prints the batch
sizes that the scheduler formed and the tokens per second, and stops the server. Standard library
only.
"""
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request

QUESTIONS = [
    "What is 37 + 48?",
    "What is the capital of France?",
    "Tell me a short story.",
    "What is the opposite of hot?",
    "Tell me a short story about a fox.",
    "How much is 85 minus 56?",
    "Tell me a story, please.",
    "What comes before March?",
]


def start_server(weir):
    """Start on a free port; return the process and its URL once it is ready."""
    proc = subprocess.Popen([weir, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    url = None
    for line in proc.stderr:
        print("   ", line.rstrip())
        found = re.search(r"listening on (http://\S+)", line)
        url = found.group(1) if found else url
        if line.rstrip().endswith("ready"):
            threading.Thread(target=proc.stderr.read, daemon=True).start()
            return proc, url
    sys.exit(f"the server did not start (exit status {proc.wait()})")


class Screen:
    """One line a chat: updated in place on a terminal, else printed piece by piece."""

    def __init__(self, n):
        self.live = sys.stdout.isatty()
        self.answers = [""] * n
        self.lock = threading.Lock()
        if self.live:
            print("\n" * n, end="")

    def add(self, i, text):
        with self.lock:
            self.answers[i] += text
            if not self.live:
                print(f"  [{i + 1}] {text!r}", flush=True)
                return
            up = len(self.answers) - i
            shown = f"{QUESTIONS[i]:<36} {self.answers[i]}".replace("\n", " ")
            width = 110
            shown = shown if len(shown) <= width else shown[:60] + " ... " + shown[-(width - 65):]
            print(f"\x1b[{up}A\r\x1b[K{i + 1}  {shown}\x1b[{up}B\r", end="", flush=True)


def chat(url, i, screen, tokens):
    body = {
        "messages": [{"role": "user", "content": QUESTIONS[i]}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 160,
    }
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            chunk = json.loads(line[6:])
            for choice in chunk["choices"]:
                if choice["delta"].get("content"):
                    screen.add(i, choice["delta"]["content"])
            if chunk.get("usage"):
                tokens[i] = chunk["usage"]["completion_tokens"]


def batch_sizes(url):
    """The histogram of sequences a step, from /metrics, as {upper bound: steps}."""
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    rows = re.findall(r'^weir_batch_sequences_bucket\{le="([^"]+)"\} (\d+)', text, re.M)
    sizes, before = {}, 0
    for bound, total in rows:
        if int(total) > before:
            sizes[bound] = int(total) - before
        before = int(total)
    return sizes


def main():
    proc, url = start_server(sys.argv[1] if len(sys.argv) > 1 else "build/weir")
    try:
        print(f"\nEight chats at once, against {url}:\n")
        screen, tokens = Screen(len(QUESTIONS)), [0] * len(QUESTIONS)
        threads = [threading.Thread(target=chat, args=(url, i, screen, tokens))
                   for i in range(len(QUESTIONS))]
        start = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        seconds = time.monotonic() - start
        if not screen.live:
            print()
            for i, question in enumerate(QUESTIONS):
                print(f"{i + 1}  {question:<36} {screen.answers[i]!r}")
        print("\nSteps by number of sequences computed together:")
        for bound, steps in batch_sizes(url).items():
            print(f"  up to {bound:>4}: {steps:5} {'#' * max(1, min(60, steps // 4))}")
        print(f"\n{sum(tokens)} tokens in {seconds:.2f} s: {sum(tokens) / seconds:.0f} tokens/s "
              f"over {len(QUESTIONS)} streams")
        if not all(screen.answers):
            sys.exit("a chat got no answer")
    finally:
        proc.terminate()
        status = proc.wait(timeout=40)
    print(f"server stopped, exit status {status}")
    sys.exit(status)


main()
