#!/usr/bin/env python3
"""Load on a server of OpenAI's API: what its clients get while many of them stream.

    bench/load.py --workload independent --clients 8 --requests 16 --prompt 64 --output 32
    bench/load.py --workload interference --clients 4 --long-prompt 1500 --output 160
    bench/load.py --api llama ...       llama-server's /completion, which Weir has as well

Prompts are random ids of tokens, so that every server reads the same ones whatever its tokenizer,
and answers are greedy and of fixed length (`ignore_eos`). One line of JSON is printed: answers,
their tokens and tokens a second of all clients together, and over all answers the time to the first
text (ttft) and the gaps between texts, in ms. Needs python3-aiohttp (scripts/client.sh has it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Optional

import aiohttp

EPILOG = """\
workloads:
  independent   --clients at a time ask for --requests answers to prompts of --prompt tokens, all
                different
  shared        the same, but every prompt begins with the same --prefix tokens
  turns         every client talks for --turns turns: it begins with --prefix tokens of its own, and
                each turn sends all that was sent before, as many ids as the answer had, and
                --prompt more
  interference  every client asks once. --delay seconds after all of them have begun to read, a
                prompt of --long-prompt tokens comes; gaps from then until half a second behind its
                end are `beside`, the others `quiet`

exit status: 0; 1 if a request failed, of which `errors` counts all and `error` is the first; 2
wrong use.
"""
LONG_OUTPUT = 8  # tokens of the long prompt's answer
MOST_VOCAB = 30_000  # ids that every usual vocabulary has
LINE_BYTES = 1 << 20  # of an event


@dataclass
class Answer:
    """When its texts came, in seconds of the monotonic clock; the request began at `sent`."""

    sent: float
    times: list[float] = field(default_factory=list)
    n_tokens: int = 0
    error: Optional[str] = None
    reading: asyncio.Event = field(default_factory=asyncio.Event)  # text, or it is over

    def gaps(self) -> list[tuple[float, float]]:
        """(when it ended, its length) of each gap between two texts."""
        return [(b, b - a) for a, b in zip(self.times, self.times[1:])]


class Load:
    def __init__(self, args: argparse.Namespace, session: aiohttp.ClientSession, n_vocab: int):
        self.args, self.session, self.n_vocab = args, session, n_vocab
        self.random = random.Random(args.seed)
        self.answers: list[Answer] = []

    def ids(self, n: int) -> list[int]:
        return [self.random.randrange(self.args.vocab_lo, self.n_vocab) for _ in range(n)]

    def body(self, prompt: list[int], n_output: int) -> tuple[str, dict[str, Any]]:
        body = {"prompt": prompt, "stream": True, "temperature": 0, "ignore_eos": True,
                "cache_prompt": True}
        if self.args.api == "llama":
            return "/completion", {**body, "n_predict": n_output}
        return "/v1/completions", {**body, "max_tokens": n_output, "model": self.args.model,
                                   "return_tokens": True, "stream_options": {"include_usage": True}}

    def take(self, answer: Answer, event: dict[str, Any]) -> None:
        """One event of either route: its text's time, or how many tokens there were."""
        if "error" in event:
            answer.error = str(event["error"])
        counted = (event.get("usage") or {}).get("completion_tokens", event.get("tokens_predicted"))
        answer.n_tokens = counted or answer.n_tokens
        if self.args.api == "llama":
            is_text = not event.get("stop")
        else:
            choice = (event.get("choices") or [None])[0]
            is_text = bool(choice) and bool(choice.get("text") or not choice.get("finish_reason"))
        if is_text:
            answer.times.append(time.monotonic())
            answer.reading.set()

    async def ask(self, prompt: list[int], n_output: int,
                  answer: Optional[Answer] = None) -> Answer:
        answer = answer or Answer(0)
        answer.sent = time.monotonic()
        path, body = self.body(prompt, n_output)
        try:
            async with self.session.post(self.args.url + path, json=body) as r:
                if r.status != 200:
                    answer.error = f"{r.status} {(await r.text())[:300]}"
                async for line in r.content:
                    if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                        self.take(answer, json.loads(line[5:]))
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError) as e:
            answer.error = f"{type(e).__name__}: {e}"
        if not answer.error and answer.n_tokens != n_output:
            answer.error = f"{answer.n_tokens} tokens, not {n_output}"
        answer.reading.set()
        return answer

    async def keep(self, prompt: list[int], answer: Optional[Answer] = None) -> None:
        """Asks, and counts the answer."""
        self.answers.append(await self.ask(prompt, self.args.output, answer))

    async def closed_loop(self, n_prefix: int) -> None:
        prefix = self.ids(n_prefix)
        prompts = [prefix + self.ids(self.args.prompt) for _ in range(self.args.requests)]

        async def client() -> None:
            while prompts:
                await self.keep(prompts.pop())

        await asyncio.gather(*[client() for _ in range(self.args.clients)])

    async def turns(self) -> None:
        async def client() -> None:
            history = self.ids(self.args.prefix)
            for _ in range(self.args.turns):
                history += self.ids(self.args.prompt)
                await self.keep(history)
                history += self.ids(self.args.output)

        await asyncio.gather(*[client() for _ in range(self.args.clients)])

    async def interference(self) -> dict[str, Any]:
        answers = [Answer(0) for _ in range(self.args.clients)]
        streams = [asyncio.create_task(self.keep(self.ids(self.args.prompt), a)) for a in answers]
        await asyncio.gather(*[a.reading.wait() for a in answers])
        await asyncio.sleep(self.args.delay)
        guest = await self.ask(self.ids(self.args.long_prompt), LONG_OUTPUT)
        end = time.monotonic() + 0.5
        await asyncio.gather(*streams)
        gaps = [g for a in answers for g in a.gaps()]
        beside = [gap for when, gap in gaps if guest.sent <= when <= end]
        quiet = [gap for when, gap in gaps if not guest.sent <= when <= end]
        if guest.error:  # else it is in none of the other figures
            self.answers.append(guest)
        return {"long_prompt_ttft_ms": ms([t - guest.sent for t in guest.times[:1]], 1),
                "quiet_gap_p50_ms": ms(quiet, 0.5), "beside_gap_p50_ms": ms(beside, 0.5),
                "beside_gap_max_ms": ms(beside, 1)}

    async def run(self) -> dict[str, Any]:
        """The figures."""
        await self.ask(self.ids(16), 4)  # the first request of a server is not like the others
        workload, more, begin = self.args.workload, {}, time.monotonic()
        if workload == "interference":
            more = await self.interference()
        elif workload == "turns":
            await self.turns()
        else:
            await self.closed_loop(self.args.prefix if workload == "shared" else 0)
        seconds = time.monotonic() - begin
        good = [a for a in self.answers if not a.error]
        errors = [a.error for a in self.answers if a.error]
        first = [a.times[0] - a.sent for a in good if a.times]
        gaps = [gap for a in good for _, gap in a.gaps()]
        n_tokens = sum(a.n_tokens for a in good)
        return {"workload": workload, "clients": self.args.clients, "answers": len(good),
                "errors": len(errors), "error": errors[0] if errors else None,
                "seconds": round(seconds, 2), "tokens": n_tokens,
                "tokens_per_second": round(n_tokens / seconds, 2),
                "ttft_p50_ms": ms(first, 0.5), "ttft_p99_ms": ms(first, 0.99),
                "gap_p50_ms": ms(gaps, 0.5), "gap_p99_ms": ms(gaps, 0.99),
                "gap_max_ms": ms(gaps, 1), **more}


def ms(seconds: list[float], part: float) -> Optional[float]:
    """The value below which that part of them lies, 1 the largest, in ms; None of nothing."""
    if not seconds:
        return None
    return round(sorted(seconds)[min(len(seconds) - 1, int(part * len(seconds)))] * 1000, 2)


async def vocabulary(args: argparse.Namespace, session: aiohttp.ClientSession) -> int:
    """How many ids prompts are made of: as many as the server's model has, if it says so."""
    if args.vocab_hi:
        return args.vocab_hi
    async with session.get(args.url + "/v1/models") as r:
        models = (await r.json(content_type=None)).get("data") or [{}]
    return min(MOST_VOCAB, (models[0].get("meta") or {}).get("n_vocab", MOST_VOCAB))


async def measure(args: argparse.Namespace) -> int:
    headers = {"Authorization": "Bearer " + args.api_key} if args.api_key else {}
    connections = aiohttp.TCPConnector(limit=0, force_close=True)  # one for each request
    limit = aiohttp.ClientTimeout(total=args.timeout)
    async with aiohttp.ClientSession(headers=headers, connector=connections, timeout=limit,
                                     read_bufsize=LINE_BYTES) as session:
        try:
            n_vocab = await vocabulary(args, session)
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError) as e:
            print(f"load: {args.url}/v1/models: {e}", file=sys.stderr)
            return 1
        if n_vocab <= args.vocab_lo:
            print(f"load: no ids from {args.vocab_lo} to {n_vocab}", file=sys.stderr)
            return 2
        figures = await Load(args, session, n_vocab).run()
    print(json.dumps(figures))
    return 1 if figures["errors"] else 0


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, epilog=EPILOG,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    workloads = ["independent", "shared", "turns", "interference"]
    p.add_argument("--url", default="http://127.0.0.1:8080", help="of the server (%(default)s)")
    p.add_argument("--api", choices=["openai", "llama"], default="openai")
    p.add_argument("--api-key", help="sent as a bearer's")
    p.add_argument("--model", default="default", help="its name in requests (%(default)s)")
    p.add_argument("--workload", choices=workloads, default=workloads[0], help="(%(default)s)")
    for name, default, what in [
            ("clients", 8, "that ask at the same time"),
            ("requests", 16, "of all clients together"),
            ("prompt", 64, "tokens of a prompt, or of a turn"),
            ("output", 32, "tokens of an answer"),
            ("prefix", 512, "tokens that all prompts, or a talk, begin with"),
            ("turns", 4, "of each client"), ("long-prompt", 1500, "tokens"),
            ("vocab-lo", 300, "the first id of prompts"), ("seed", 1, "of prompts")]:
        p.add_argument("--" + name, type=int, default=default, help=f"{what} (%(default)s)")
    p.add_argument("--vocab-hi", type=int,
                   help=f"behind the last id (the model's, at most {MOST_VOCAB})")
    p.add_argument("--delay", type=float, default=2,
                   help="seconds before the long prompt (%(default)s)")
    p.add_argument("--timeout", type=float, default=600, help="seconds of a request (%(default)s)")
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(measure(parse())))
