#!/usr/bin/env python3
"""Weir beside llama.cpp and ik_llama.cpp on the same model files, in turns.

Machines drift by 20 % from one minute to the next, so tools measured one after the other cannot be
compared. Here every tool runs one short test of everything in each round, in the order A B C and
then C B A, and what counts is the median of the ratios within rounds:

    bench/compare.py --llama llama-bench --batched-bench llama-batched-bench -m model.Q8_0.gguf
    bench/compare.py --ik ik/llama-bench --ik-args="-rtr 0" --ik-args="-rtr 1" \\
        -m a.gguf -m b.gguf --json all.json --plot all.png
    bench/compare.py --from all.json --plot all.png      the same table and plot, measuring nothing
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from compare_tools import KINDS, Failure, Plan, Test, Tool, missing, take_turn

EPILOG = """\
what is measured, the same for everybody:
  prefill         one prompt of --prefill tokens from an empty context, in chunks of at most 512
                  rows, logits for its last token only
  decode          --decode tokens a stream; every token's logits are computed, none is sampled
  depth           decode behind that many positions of one context. The peers compute them first;
                  weir bench only puts their memory in place; neither is part of the time
  streams         decode of that many sequences in one batch, tokens of all of them together.
                  Depth 0 is depth 1 there, because llama-batched-bench wants a prompt
  all of them     --threads threads, keys and values in f16, one repetition a turn, each tool's
                  own warm-up (the whole prompt; for ik one token); loading the model is outside
                  the time. The peers should be CPU builds
Measure on an otherwise idle machine, not under nice: beside other work, tools whose threads spin
while they wait lose many times their share, and the ratios say nothing.
Batches are measured at the first depth, depths at the first batch: not every pair.
ratio: weir over peer, median of the rounds' ratios, with the smallest and the largest of them.
of limit: limit_fraction of `weir bench --json`, of what this machine's memory and arithmetic allow.
Several modes of a peer (--ik-args and the like, repeated) take turns like tools; in every test the
mode with the best median counts. Write --ik-args="-fa 1" with the equals sign.

exit status: 0, also if a peer failed (its column is '-'); 1 if weir failed; 2 wrong use; 3 if
--plot was asked for and matplotlib is not there; 130 after Ctrl-C, which prints what was gathered.
"""

WEIR_FAILED, WRONG_USE, NO_MATPLOTLIB, INTERRUPTED = 1, 2, 3, 130
STYLES = {"weir": ("#0072B2", "o"), "llama.cpp": ("#D55E00", "s"), "ik_llama.cpp": ("#009E73", "^")}


@dataclass
class Record:
    """All that was measured, as --json writes it. A sample: {"model": "a.gguf", "round": 0,
    "turn": 1, "at_s": 3.2, "tool": "llama-bench", "mode": "-fa 1", "test": "decode", "batch": 1,
    "depth": 0, "tok_s": 22.6, "limit_fraction": null}. Rounds and turns count from 0."""

    plan: Plan
    models: list[str]
    alternations: int
    tools: list[Tool]
    samples: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    stopped: Optional[str] = None

    @staticmethod
    def load(path: str) -> Record:
        o = json.loads(pathlib.Path(path).read_text())
        o.pop("commands")
        tools = [Tool(**t) for t in o.pop("tools")]
        return Record(plan=Plan(**o.pop("plan")), tools=tools, **o)

    def save(self, path: str) -> None:
        commands = [shlex.join(c) for t in self.tools for c in t.commands(self.plan, "MODEL")]
        text = json.dumps({"commands": commands, **asdict(self)}, indent=1)
        pathlib.Path(path).write_text(text + "\n")

    def columns(self) -> list[str]:
        return list(dict.fromkeys(t.column for t in self.tools))

    def failed(self, tool: Tool, model: str) -> bool:
        key = (tool.kind, tool.mode, model)
        return any((f["tool"], f["mode"], f["model"]) == key for f in self.failures)

    def best(self, column: str, model: str, test: Test) -> dict[int, dict[str, Any]]:
        """Samples by round, of the mode that is best at this test; none of a tool that failed."""
        modes: list[dict[int, dict[str, Any]]] = []
        for tool in self.tools:
            key = (tool.kind, tool.mode, model, *test)
            names = ("tool", "mode", "model", "test", "batch", "depth")
            mine = [s for s in self.samples if tuple(s[n] for n in names) == key]
            if mine and tool.column == column and not self.failed(tool, model):
                modes.append({s["round"]: s for s in mine})
        return max(modes, key=speed, default={})


def speed(rounds: dict[int, dict[str, Any]]) -> float:
    return statistics.median(s["tok_s"] for s in rounds.values())


def ratios(weir: dict[int, dict[str, Any]], peer: dict[int, dict[str, Any]]) -> list[float]:
    """Of the rounds that both have: {0: 30 tok/s, 1: 20} and {0: 10, 1: 20} give [3, 1]."""
    return [weir[r]["tok_s"] / peer[r]["tok_s"] for r in sorted(weir.keys() & peer.keys())]


def say(text: str) -> None:
    print(f"compare: {text}", file=sys.stderr, flush=True)


def measure(record: Record) -> None:
    """Fill the record; raises Failure if weir fails."""
    began = time.monotonic()
    for model in record.models:
        for r in range(record.alternations):
            order = [t for t in record.tools if not record.failed(t, model)]
            for turn, tool in enumerate(reversed(order) if r % 2 else order):
                where = {"model": model, "round": r, "turn": turn, "tool": tool.kind,
                         "mode": tool.mode, "at_s": round(time.monotonic() - began, 2)}
                say(f"{os.path.basename(model)}, round {r + 1} of {record.alternations}: "
                    f"{tool.name()}")
                measure_turn(record, tool, where)


def measure_turn(record: Record, tool: Tool, where: dict[str, Any]) -> None:
    """Add the samples of one turn, or the failure of a peer."""
    model = where["model"]
    try:
        results = take_turn(tool, record.plan, model)
    except Failure as e:
        if tool.column == "weir":
            raise
        say(f"{os.path.basename(model)}, {tool.name()} failed: {e}")
        record.failures.append({**where, "error": str(e)})
        return
    for x in results:
        record.samples.append({**where, "test": x.test.kind, "batch": x.test.batch,
                               "depth": x.test.depth, "tok_s": x.tok_s,
                               "limit_fraction": x.limit_fraction})
    for test in missing(record.plan, tool, results) if where["round"] == 0 else []:
        say(f"{os.path.basename(model)}, {tool.name()}: no result for {record.plan.label(test)}")


def cells(record: Record, model: str, test: Test) -> list[str]:
    """One line of the table: label, weir, of limit, then tokens/s and ratio of each peer."""
    weir = record.best("weir", model, test)
    fractions = [s["limit_fraction"] for s in weir.values() if s["limit_fraction"]]
    row = [record.plan.label(test), f"{speed(weir):.1f}" if weir else "-"]
    row += [f"{statistics.median(fractions) * 100:.0f} %" if fractions else "-"]
    for column in record.columns()[1:]:
        peer = record.best(column, model, test)
        x = ratios(weir, peer)
        row += [f"{speed(peer):.1f}" if peer else "-"]
        row += [f"{statistics.median(x):.2f} ({min(x):.2f}..{max(x):.2f})" if x else "-"]
    return row


def print_table(record: Record, model: str) -> None:
    tests, peers = record.plan.tests(), record.columns()[1:]
    head = ["tokens/s", "weir", "of limit", *(h for p in peers for h in (p, "ratio (min..max)"))]
    rows = [head] + [cells(record, model, t) for t in tests]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    n_rounds = len({s["round"] for s in record.samples if s["model"] == model})
    print(f"\n{os.path.basename(model)}, {record.plan.threads} threads, kv f16, "
          f"medians of {n_rounds} rounds")
    for row in rows:
        line = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  ".join(line))
    for kind in dict.fromkeys(t.kind for t in record.tools):
        if sum(t.kind == kind for t in record.tools) > 1:
            print_modes(record, model, kind)


def print_modes(record: Record, model: str, kind: str) -> None:
    """Which of several modes counted where."""
    for test in record.plan.tests():
        used = list(record.best(KINDS[kind].column, model, test).values())[:1]
        if used and used[0]["tool"] == kind:
            print(f"  {record.plan.label(test)}: {kind} at its best with "
                  f"'{used[0]['mode'] or 'no more arguments'}'")


def draw(axes: Any, record: Record, model: str, by_batch: bool) -> None:
    """One panel: a line a tool through its medians, bars from its slowest to its fastest round."""
    plan = record.plan
    xs = plan.batches if by_batch else plan.depths
    for column in record.columns():
        colour, marker = STYLES[column]
        tests = [Test("decode", *((x, plan.depths[0]) if by_batch else (plan.batches[0], x)))
                 for x in xs]
        points = [(x, record.best(column, model, t)) for x, t in zip(xs, tests)]
        points = sorted((p for p in points if p[1]), key=lambda p: p[0])
        if not points:
            continue
        mid = [speed(rounds) for _, rounds in points]
        low = [m - min(s["tok_s"] for s in p[1].values()) for m, p in zip(mid, points)]
        high = [max(s["tok_s"] for s in p[1].values()) - m for m, p in zip(mid, points)]
        axes.errorbar([x for x, _ in points], mid, yerr=[low, high], label=column, color=colour,
                      marker=marker, markersize=6, linewidth=2, elinewidth=1, capsize=3)
    if by_batch:
        axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [str(x) for x in xs])
    axes.minorticks_off()
    held = f"depth {plan.depths[0]}" if by_batch else f"{plan.batches[0]} stream(s)"
    axes.set_title(f"{os.path.basename(model)}, decode, {held}", fontsize=10)
    axes.set_xlabel("streams decoding at once" if by_batch else "depth (tokens in the context)")
    axes.set_ylabel("tokens/s, all streams")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def plot(record: Record, path: str) -> None:
    """Tokens per second over the batch and over the depth, one row of panels a model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    n = len(record.models)
    figure, panels = pyplot.subplots(n, 2, figsize=(11, 4 * n), squeeze=False)
    for model, (left, right) in zip(record.models, panels):
        draw(left, record, model, by_batch=True)
        draw(right, record, model, by_batch=False)
    figure.suptitle(f"Decode on {record.plan.threads} threads, kv f16: medians, bars from the "
                    "slowest to the fastest round", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=130, format="png")


def integers(least: int) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        values = [int(x) for x in text.split(",")]
        if min(values) < least:
            raise ValueError(text)
        return list(dict.fromkeys(values))

    parse.__name__ = "list"
    return parse


def arguments(argv: Optional[list[str]]) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, epilog=EPILOG,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weir", default="build/weir", metavar="PATH", help="default: build/weir")
    p.add_argument("--llama", metavar="PATH", help="llama.cpp's llama-bench")
    p.add_argument("--batched-bench", metavar="PATH", help="its llama-batched-bench, for streams")
    p.add_argument("--ik", metavar="PATH", help="ik_llama.cpp's llama-bench")
    for name in ("llama", "batched", "ik"):
        p.add_argument(f"--{name}-args", action="append", metavar="ARGS",
                       help="more arguments for it; repeat to try several modes")
    p.add_argument("-m", "--model", action="append", metavar="GGUF", help="repeat for several")
    p.add_argument("--threads", type=int, metavar="N", default=len(os.sched_getaffinity(0)),
                   help="of every tool (default: one a core)")
    p.add_argument("--prefill", type=int, metavar="N", default=256,
                   help="prompt tokens (default 256)")
    p.add_argument("--decode", type=int, metavar="N", default=32,
                   help="tokens a stream (default 32)")
    p.add_argument("--depth", type=integers(0), metavar="LIST", default=[0, 1500],
                   help="tokens in the context before a decode (default 0,1500)")
    p.add_argument("--batch", type=integers(1), metavar="LIST", default=[1, 8, 32],
                   help="streams (default 1,8,32)")
    p.add_argument("--alternations", type=int, default=5, metavar="N", help="rounds (default 5)")
    p.add_argument("--json", metavar="FILE", help="write every sample there")
    p.add_argument("--plot", metavar="PNG", help="draw it (needs python3-matplotlib)")
    p.add_argument("--from", dest="source", metavar="FILE", help="show what --json wrote")
    a = p.parse_args(argv)
    if not a.source and not a.model:
        p.error("-m MODEL is missing")
    if min(a.threads, a.alternations) < 1:
        p.error("--threads and --alternations start at 1")
    if min(a.prefill, a.decode) < 0 or a.prefill + a.decode == 0:
        p.error("--prefill and --decode start at 0, and not both are 0")
    return a


def check_writable(paths: list[Optional[str]]) -> None:
    """Before measuring, not an hour later."""
    for path in filter(None, paths):
        try:
            open(path, "ab").close()
        except OSError as e:
            raise Failure(f"cannot write {path}: {e.strerror}") from None


def tools_of(a: argparse.Namespace) -> list[Tool]:
    tools = [Tool("weir bench", a.weir)]
    for kind, path, modes in (("llama-bench", a.llama, a.llama_args),
                              ("llama-batched-bench", a.batched_bench, a.batched_args),
                              ("ik llama-bench", a.ik, a.ik_args)):
        tools += [Tool(kind, path, mode) for mode in modes or [""]] if path else []
    return tools


def gather(a: argparse.Namespace) -> tuple[Record, int]:
    """The record, as far as it came, and the exit status."""
    plan = Plan(a.threads, a.prefill, a.decode, a.depth, a.batch)
    tools = [t for t in tools_of(a) if t.commands(plan, "MODEL")]
    record = Record(plan, list(dict.fromkeys(a.model)), a.alternations, tools)
    try:
        measure(record)
        return record, 0
    except Failure as e:
        record.stopped = f"weir bench: {e}"
        say(record.stopped)
        return record, WEIR_FAILED
    except KeyboardInterrupt:
        record.stopped = "interrupted"
        say("interrupted; this is what was gathered")
        return record, INTERRUPTED


def recorded(path: str) -> Record:
    try:
        return Record.load(path)
    except OSError as e:
        raise Failure(f"cannot read {path}: {e.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Failure(f"{path}: not what --json writes") from None


def main(argv: Optional[list[str]] = None) -> int:
    a = arguments(argv)
    if a.plot and importlib.util.find_spec("matplotlib") is None:
        say("--plot needs python3-matplotlib, which is not installed; nothing was done")
        return NO_MATPLOTLIB
    try:
        check_writable([a.json, a.plot])
        record, status = (recorded(a.source), 0) if a.source else gather(a)
    except Failure as e:
        say(str(e))
        return WRONG_USE
    if a.json:
        record.save(a.json)
    for model in record.models:
        if any(s["model"] == model for s in record.samples):
            print_table(record, model)
    if a.plot and record.samples:
        plot(record, a.plot)
    return status


if __name__ == "__main__":
    sys.exit(main())
