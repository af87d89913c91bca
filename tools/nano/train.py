"""Trains weir-nano. `python train.py --out DIR` writes DIR/vocab.json and DIR/model.pt.

The length of the training is a time, not a number of steps, so that it ends when it should on any
machine; the schedule (stages, learning rate) follows the share of the time that is used up.

Several processes of one thread each share the weights. A step is cut into parts, and each process
takes the next part when it is free: on a machine that does other things as well this is several
times as fast as threads that wait for each other in every product.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import tasks
import vocab
from generate import (CAPITAL_SYSTEMS, Generator, Message, Packer, TOOLS, plain_texts,
                      tool_system, tool_turn)
from model import Model, Shape
from optim import AdamW, Muon

# (until this share of the time, {kind of row: share}, [(parts, rows, length, turns)]).
# Looking back is learnt first, from random tokens; then sums, from short rows that hold nothing
# else; then all else, with rows of nothing but copying kept in.
SHORT = (4, 8, 128, 6)
STAGES = [
    (0.12, {"random_tokens": 1.0}, [SHORT]),
    (0.40, {"only_sums": 0.3, "random_tokens": 0.2, "random_backwards": 0.1, "only_copies": 0.4},
     [SHORT]),
    (0.49, {"only_sums": 0.5, "random_tokens": 0.03, "random_backwards": 0.02,
            "only_copies": 0.25, "document": 0.2}, [SHORT]),
    (0.69, {"only_sums": 0.2, "random_tokens": 0.02, "random_backwards": 0.04,
            "only_copies": 0.32, "only_tools": 0.07, "document": 0.35}, [(4, 4, 256, 6)]),
    (0.75, {"only_sums": 0.18, "random_tokens": 0.02, "random_backwards": 0.02,
            "only_copies": 0.34, "only_tools": 0.06, "document": 0.38},
     [(4, 4, 256, 6)] * 5 + [(4, 2, 512, 12)]),
    (1.00, {"only_sums": 0.38, "only_copies": 0.20, "only_tools": 0.12, "document": 0.30},
     [(4, 4, 256, 6)] * 5 + [(4, 2, 512, 12)]),
]
WARM_UP = 0.01
DECAY_FROM = 0.5


def rate(progress):
    """The learning rate as a share of its peak."""
    if progress < WARM_UP:
        return progress / WARM_UP
    return 1.0 if progress < DECAY_FROM else max(0.0, (1 - progress) / (1 - DECAY_FROM))


def batch_loss(model, ids, weights):
    """The weighted mean of the loss where something is to be learnt; the rest has no logits."""
    targets, weights = ids[:, 1:], weights[:, 1:]
    learnt = weights > 0
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.hidden(ids[:, :-1])
        logits = model.logits(hidden[learnt])
    losses = F.cross_entropy(logits.float(), targets[learnt], reduction="none")
    return (losses * weights[learnt]).sum() / weights[learnt].sum()


@torch.no_grad()
def share_right(model, packer, conversations):
    """The share of conversations whose every token of weight 1 is the likeliest one."""
    docs = [packer.encode(c) for c in conversations]
    length = max(len(ids) for ids, _ in docs)
    ids = torch.zeros(len(docs), length, dtype=torch.long)
    asked = torch.zeros(len(docs), length, dtype=torch.bool)
    for i, (doc, weights) in enumerate(docs):
        ids[i, :len(doc)] = torch.tensor(doc)
        asked[i, :len(doc)] = torch.tensor(weights) == 1.0
    with torch.autocast("cpu", torch.bfloat16):
        best = model(ids[:, :-1]).argmax(-1)
    return ((best == ids[:, 1:]) | ~asked[:, 1:]).all(1).float().mean().item()


def probes(seed=7):
    """A few questions of each kind, held-out ones where there are any, to watch the training by."""
    rng = tasks.random_of(seed)
    pairs = tasks.held_out_pairs()
    rng.shuffle(pairs)
    kinds = {"+": lambda a, b, op: op == "+", "-": lambda a, b, op: op == "-" and a >= b,
             "neg": lambda a, b, op: op == "-" and a < b}
    out = {}
    for name, wanted in kinds.items():
        chosen = [p for p in pairs if wanted(*p)][:100]
        out[name] = [[Message("user", tasks.ask_pair(rng, *p), 0),
                      Message("assistant", str(tasks.result(*p)), 1.0)] for p in chosen]
    known = rng.sample(tasks.TRAINED_FACTS, 100)
    out["facts"] = [talk(rng.choice(qs), f.sentence) for qs, f in known]
    for task in (tasks.repeat, tasks.capitals, tasks.reverse, tasks.spell, tasks.count,
                 tasks.json_object):
        out[task.__name__] = [talk(*task(rng)[0]) for _ in range(40)]
    told = [(tasks.remember(rng), tasks.fact(rng)) for _ in range(40)]
    out["told"] = [talk(*t[0], 0) + talk(*f[0], 0) + talk(*t[1]) for t, f in told]
    out["CAPS"] = [[Message("system", CAPITAL_SYSTEMS[0], 0), *talk(q, f.sentence.upper())]
                   for q, f in rng.sample(tasks.held_out_facts(), 40)]
    out["tools"] = []
    for _ in range(30):
        tool, key = rng.choice(TOOLS), rng.choice(["city", "location"])
        system = Message("system", tool_system(rng, TOOLS, key), 0)
        asked, call = tool_turn(rng, tool, key)[:2]
        out["tools"].append([system, *talk(asked.content, call.content)])
    return out


def talk(question, answer, weight=1.0):
    return [Message("user", question, 0), Message("assistant", answer, weight)]


def save(path, model, optimizers, progress):
    state = {"model": model.state_dict(), "shape": vars(model.shape), "progress": progress,
             "optimizers": [o.state_dict() for o in optimizers]}
    torch.save(state, str(path) + ".part")
    os.replace(str(path) + ".part", path)


def work(model, packer, shares, batch, left):
    """Takes parts of the step until none is left; gradients add up. Returns the loss."""
    parts, *shape = batch
    total = 0.0
    while True:
        with left.get_lock():
            if left.value == 0:
                return total
            left.value -= 1
        ids, weights = (torch.from_numpy(x) for x in packer.rows(shares, *shape))
        loss = batch_loss(model, ids, weights) / parts
        loss.backward()
        total += loss.item()


def helper(model, grads, vocab_path, seed, pipe, left):
    """Another process: does its share of each step and leaves its gradients in `grads`."""
    torch.set_num_threads(1)
    packer = Packer(vocab.load(vocab_path), Generator(seed))
    model.hidden = torch.compile(model.hidden, dynamic=False)
    while (todo := pipe.recv()) is not None:
        loss = work(model, packer, *todo, left)
        for p, grad in zip(model.parameters(), grads):
            grad.zero_() if p.grad is None else grad.copy_(p.grad)
            p.grad = None
        pipe.send(loss)


class Helpers:
    def __init__(self, count, model, vocab_path, seed):
        context = mp.get_context("spawn")
        self.left, self.model, self.all = context.Value("i", 0), model, []
        for i in range(count):
            grads = [torch.zeros_like(p).share_memory_() for p in model.parameters()]
            pipe, other = context.Pipe()
            args = (model, grads, vocab_path, seed + 1000 * (i + 1), other, self.left)
            context.Process(target=helper, args=args, daemon=True).start()
            self.all.append((pipe, grads))

    def step(self, packer, shares, batch):
        """One step's gradients, from this process and the helpers; returns the loss."""
        self.left.value = batch[0]
        for pipe, _ in self.all:
            pipe.send((shares, batch))
        loss = work(self.model, packer, shares, batch, self.left)
        for pipe, grads in self.all:
            loss += pipe.recv()
            for p, grad in zip(self.model.parameters(), grads):
                p.grad = grad.clone() if p.grad is None else p.grad.add_(grad)
        return loss


def parse():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--out", type=Path, required=True)
    args.add_argument("--minutes", type=float, default=60)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--rate", type=float, default=0.02, help="peak rate of Muon")
    args.add_argument("--adam-rate", type=float, default=0.003)
    args.add_argument("--layers", type=int, default=Shape.layers)
    args.add_argument("--processes", type=int, default=2)
    args.add_argument("--resume", action="store_true")
    return args.parse_args()


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    vocab_path, path = args.out / "vocab.json", args.out / "model.pt"
    if not vocab_path.exists():
        vocab.train(plain_texts(Generator(seed=1), 20_000)).save(str(vocab_path))
    tokenizer = vocab.load(vocab_path)

    model = Model(Shape(layers=args.layers))
    matrices = [p for p in model.blk.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    optimizers = [Muon(matrices, args.rate), AdamW(others, args.adam_rate)]
    begun = 0.0
    if args.resume:
        state = torch.load(path)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        begun = state["progress"]
    seed = args.seed + int(1e6 * begun)
    model.share_memory()
    helpers = Helpers(args.processes - 1, model, vocab_path, seed)
    packer = Packer(tokenizer, Generator(seed))
    hidden, model.hidden = model.hidden, torch.compile(model.hidden, dynamic=False)
    watch = probes()
    start, step, tokens, average = time.time(), 0, 0, None
    reported = saved = start
    while True:
        now = time.time()
        progress = begun + (now - start) / (60 * args.minutes)
        if progress >= 1:
            break
        shares, batches = next(s[1:] for s in STAGES if progress < s[0])
        batch = batches[step % len(batches)]
        loss = helpers.step(packer, shares, batch)
        for optimizer in optimizers:
            optimizer.step(rate(progress))
            optimizer.zero_grad()
        step, tokens = step + 1, tokens + batch[0] * batch[1] * batch[2]
        average = loss if average is None else 0.95 * average + 0.05 * loss
        if now - reported > 75:
            reported, compiled, model.hidden = now, model.hidden, hidden
            right = "  ".join(f"{name} {100 * share_right(model, packer, asked):.0f}"
                              for name, asked in watch.items())
            model.hidden = compiled
            print(f"{(now - start) / 60:5.1f} min  {progress:.3f}  step {step}  "
                  f"{tokens / 1e6:.2f} M tokens  loss {average:.3f}  {right}", flush=True)
        if now - saved > 180:
            saved = now
            save(path, model, optimizers, progress)
    save(path, model, optimizers, 1.0)


if __name__ == "__main__":
    main()
