"""The tools that compare.py sets beside each other: how each is called and how its output reads.

A Plan says what to measure, a Tool is one program with one set of arguments, and take_turn() gives
everything that it measures of a model in one turn:

    take_turn(Tool("llama-bench", "./llama-bench", "-fa 1"), Plan(2, 256, 32, [0], [1]), "a.gguf")
    -> [Result(Test("prefill", 1, 0), 100.2), Result(Test("decode", 1, 0), 22.6)]

A further tool is a function for its calls, one for its objects, and a row in KINDS."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional


class Failure(Exception):
    """A tool that did not do its turn; the text is one line for people."""


class Test(NamedTuple):
    """One row of the table: Test("decode", batch=8, depth=0)."""

    kind: str
    batch: int
    depth: int


class Result(NamedTuple):
    test: Test
    tok_s: float
    limit_fraction: Optional[float] = None


@dataclass
class Plan:
    """What to measure. Plan(2, 256, 32, [0, 1500], [1, 8]).tests() gives prefill, decode, decode at
    depth 1500 and decode of 8 streams."""

    threads: int
    prefill: int
    decode: int
    depths: list[int]
    batches: list[int]

    def tests(self) -> list[Test]:
        tests = [Test("prefill", 1, 0)] if self.prefill else []
        if self.decode:
            tests += [Test("decode", self.batches[0], d) for d in self.depths]
            tests += [Test("decode", b, self.depths[0]) for b in self.batches[1:]]
        return list(dict.fromkeys(tests))

    def single_depths(self) -> list[int]:
        return [t.depth for t in self.tests() if t.kind == "decode" and t.batch == 1]

    def label(self, test: Test) -> str:
        words = [f"prefill {self.prefill}" if test.kind == "prefill" else "decode"]
        words += [f"{test.batch} streams"] if test.batch > 1 else []
        words += [f"depth {test.depth}"] if test.depth > 0 else []
        return ", ".join(words)


def comma(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def weir_calls(p: Plan) -> list[list[str]]:
    """Two calls, since one measures every batch at every depth."""
    common = ["bench", "--json", "--repeat", "1", "--kv-type", "f16", "--threads", str(p.threads),
              "--decode", str(p.decode)]
    first, deeper = p.depths[:1], p.depths[1:]
    calls = [["--prefill", str(p.prefill), "--batch", comma(p.batches), "--depth", comma(first)]]
    if deeper and p.decode:
        calls += [["--prefill", "0", "--batch", str(p.batches[0]), "--depth", comma(deeper)]]
    return [common + call for call in calls]


def read_weir(o: dict[str, Any]) -> Result:
    return Result(Test(o["test"], o["batch"], o["depth"]), o["tok_s"], o["limit_fraction"])


def bench_options(p: Plan) -> list[str]:
    return ["-t", str(p.threads), "-ctk", "f16", "-ctv", "f16"]


def llama_calls(p: Plan) -> list[list[str]]:
    """Two calls, since one would measure the prompt at every depth too."""
    deep = [d for d in p.single_depths() if d > 0]
    shallow_n = p.decode if 0 in p.single_depths() else 0
    calls = [["-p", str(p.prefill), "-n", str(shallow_n)]] if p.prefill or shallow_n else []
    calls += [["-p", "0", "-n", str(p.decode), "-d", comma(deep)]] if deep else []
    return [bench_options(p) + ["-r", "1", "-o", "json"] + call for call in calls]


def ik_calls(p: Plan) -> list[list[str]]:
    """Depth is -gp D,N here: N tokens after a prompt of D that is not timed."""
    shallow_n = p.decode if 0 in p.single_depths() else 0
    call = bench_options(p) + ["-r", "1", "-o", "json"]
    call += ["-p", str(p.prefill), "-n", str(shallow_n)]
    for depth in p.single_depths():
        call += ["-gp", f"{depth},{p.decode}"] if depth > 0 else []
    return [call] if p.prefill or p.single_depths() else []


def read_llama(o: dict[str, Any]) -> Result:
    """llama-bench of either project: the depth is n_depth, or n_prompt where -gp was asked for."""
    if o["n_gen"] == 0:
        return Result(Test("prefill", 1, o.get("n_depth", 0)), o["avg_ts"])
    return Result(Test("decode", 1, o.get("n_depth", 0) + o["n_prompt"]), o["avg_ts"])


def batched_calls(p: Plan) -> list[list[str]]:
    """One call a depth. The lone stream at the end is there because the program may exit before its
    last line is written; what it measures is not read."""
    calls = []
    for depth in p.depths:
        batches = [t.batch for t in p.tests() if t.batch > 1 and t.depth == depth]
        if batches:
            n_prompt = max(depth, 1)
            context = max(batches) * (n_prompt + p.decode)
            calls += [["-npp", str(n_prompt), "-ntg", str(p.decode), "-npl", comma(batches + [1]),
                       "-c", str(context), "--output-format", "jsonl"]]
    return [bench_options(p) + call for call in calls]


def read_batched(o: dict[str, Any]) -> Optional[Result]:
    depth = 0 if o["pp"] == 1 else o["pp"]
    return Result(Test("decode", o["pl"], depth), o["speed_tg"]) if o["pl"] > 1 else None


class Kind(NamedTuple):
    column: str
    calls: Callable[[Plan], list[list[str]]]
    read: Callable[[dict[str, Any]], Optional[Result]]


KINDS = {
    "weir bench": Kind("weir", weir_calls, read_weir),
    "llama-bench": Kind("llama.cpp", llama_calls, read_llama),
    "llama-batched-bench": Kind("llama.cpp", batched_calls, read_batched),
    "ik llama-bench": Kind("ik_llama.cpp", ik_calls, read_llama),
}


@dataclass
class Tool:
    """A program with one set of extra arguments: what takes a turn."""

    kind: str
    path: str
    mode: str = ""

    @property
    def column(self) -> str:
        return KINDS[self.kind].column

    def name(self) -> str:
        return f"{self.kind} {self.mode}".strip()

    def commands(self, plan: Plan, model: str) -> list[list[str]]:
        calls = KINDS[self.kind].calls(plan)
        return [[self.path, *call, *shlex.split(self.mode), "-m", model] for call in calls]


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that begin a line, alone or in a list, whatever else is printed between."""
    at = 0
    while match := re.compile(r"^[ \t\[]*(?=\{)", re.M).search(text, at):
        try:
            value, at = json.JSONDecoder().raw_decode(text, match.end())
            yield value
        except ValueError:
            at = match.end() + 1


def last_line(text: str) -> str:
    """The last line that says something, without the folders of files named in it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    return re.sub(r"(?<![\w.])/(?:[^\s/:'\"]+/)+", "", lines[-1])[:200]


def output_of(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False)
    except OSError as e:
        raise Failure(f"cannot run {argv[0]}: {e.strerror}") from None
    if done.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    if done.returncode:
        n = done.returncode
        how = f"killed by {signal.Signals(-n).name}" if n < 0 else f"exit status {n}"
        raise Failure(f"{how}: {last_line(done.stderr)}")
    return done.stdout


def take_turn(tool: Tool, plan: Plan, model: str) -> list[Result]:
    """Everything that the tool can measure of this model, once."""
    results = []
    for argv in tool.commands(plan, model):
        try:
            found = [KINDS[tool.kind].read(o) for o in objects(output_of(argv))]
            results += [r for r in found if r and r.tok_s > 0]
        except (KeyError, TypeError) as e:
            raise Failure(f"prints results of another form ({type(e).__name__} {e})") from None
    if not results:
        raise Failure("printed no result")
    return results


def missing(plan: Plan, tool: Tool, results: list[Result]) -> list[Test]:
    """What it should have measured and passed over, because the context is too short, say."""
    done = {x.test for x in results}
    batched = tool.kind == "llama-batched-bench"
    mine = [t for t in plan.tests() if tool.column == "weir" or (t.batch > 1) == batched]
    return [t for t in mine if t not in done]
