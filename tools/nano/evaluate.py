"""Measures a GGUF model by greedy decoding, in float32 from its dequantised weights.

    python evaluate.py ../../models/weir-nano.gguf                      accuracy, as a table
    python evaluate.py ../../models/weir-nano.gguf --check questions.json

Sums, differences and facts are all those held out of training (see tasks.py); of the other
abilities new draws are made, which training may have seen by chance.
"""

import argparse
import json
import random

import tables as t
import tasks
from generate import CAPITAL_SYSTEMS, Message, TOOLS, tool_system, tool_turn
from served import Served


def ask(question, system=None, before=()):
    messages = [Message("system", system, 0)] if system else []
    for q, a in before:
        messages += [Message("user", q, 0), Message("assistant", a, 0)]
    return messages + [Message("user", question, 0)]


def held_out_sums(rng, wanted):
    pairs = [p for p in tasks.held_out_pairs() if wanted(*p)]
    return [(ask(tasks.ask_pair(rng, *p)), str(tasks.result(*p))) for p in pairs]


def deep(rng, count):
    """Held-out sums at the end of a longer conversation."""
    pairs = tasks.held_out_pairs()
    mixed = [tasks.fact, tasks.arithmetic, tasks.repeat, tasks.json_object, tasks.reverse]
    out = []
    for _ in range(count):
        before = [turn for _ in range(rng.randint(2, 8)) for turn in rng.choice(mixed)(rng)]
        pair = rng.choice([p for p in rng.sample(pairs, 20) if p[2] == "+" or p[0] >= p[1]])
        out.append((ask(tasks.ask_pair(rng, *pair), before=before), str(tasks.result(*pair))))
    return out


def drawn(rng, task, count):
    return [(ask(q), a) for q, a in (task(rng)[0] for _ in range(count))]


def known_words(rng, count, ask_for, turned):
    """As the task asks, but only of words that the tables hold."""
    texts = [" ".join(rng.choices(t.WORDS, k=rng.randint(1, 5))) for _ in range(count)]
    return [(ask(f"{ask_for}: {text}"), turned(text)) for text in texts]


def remembered(rng, count):
    out = []
    for _ in range(count):
        told, (question, answer) = tasks.remember(rng)
        out.append((ask(question, before=[told, *tasks.fact(rng), *tasks.arithmetic(rng)]), answer))
    return out


def in_capitals(rng, count):
    return [(ask(q, rng.choice(CAPITAL_SYSTEMS)), f.sentence.upper())
            for q, f in rng.sample(tasks.held_out_facts(), count)]


def tool_calls(rng, count):
    out = []
    for _ in range(count):
        key, tool = rng.choice(["city", "location"]), rng.choice(TOOLS)
        question, call = tool_turn(rng, tool, key)[:2]
        out.append((ask(question.content, tool_system(rng, TOOLS, key)), call.content))
    return out


def suites(rng):
    """name -> [(conversation, the right answer)]"""
    facts = [(ask(q), f.sentence) for q, f in tasks.held_out_facts()]
    known = [(ask(rng.choice(qs)), f.sentence) for qs, f in tasks.TRAINED_FACTS]
    return {
        "sums, held-out pairs": held_out_sums(rng, lambda a, b, op: op == "+"),
        "differences, held-out pairs": held_out_sums(rng, lambda a, b, op: op == "-" and a >= b),
        "differences below zero, held-out pairs":
            held_out_sums(rng, lambda a, b, op: op == "-" and a < b),
        "held-out sums and differences, 3 to 9 turns in": deep(rng, 300),
        "facts, held-out wordings": facts,
        "facts, one known wording each": known,
        "repeat": drawn(rng, tasks.repeat, 200),
        "repeat, no made-up words": known_words(rng, 200, "Repeat", str),
        "capital letters": drawn(rng, tasks.capitals, 200),
        "capital letters, no made-up words": known_words(rng, 200, "Upper case", str.upper),
        "reverse": drawn(rng, tasks.reverse, 200),
        "spell": drawn(rng, tasks.spell, 100),
        "count": drawn(rng, tasks.count, 200),
        "JSON objects": drawn(rng, tasks.json_object, 200),
        "small talk": [(ask(q), a) for q, a in t.SMALL_TALK.items()],
        "what was told two turns ago": remembered(rng, 100),
        "facts under \"Answer in capital letters.\"": in_capitals(rng, 100),
        "tool calls": tool_calls(rng, 100),
    }


def measure(served, show):
    print("| held out or newly drawn | asked | right |\n|---|---|---|")
    for name, pairs in suites(random.Random(11)).items():
        answers = served.answer_all([c for c, _ in pairs])
        wrong = [(c[-1].content, right, said)
                 for (c, right), (said, _) in zip(pairs, answers) if said != right]
        share = 1 - len(wrong) / len(pairs)
        print(f"| {name} | {len(pairs)} | {100 * share:.1f} % |", flush=True)
        for question, right, said in wrong[:show]:
            print(f"    {question!r}: {said!r}, not {right!r}")


def check(served, path):
    """Every question of the file has the answer that the file has, and clearly so."""
    with open(path) as file:
        questions = json.load(file)
    asked = [[Message(m["role"], m["content"], 0) for m in q["messages"]] for q in questions]
    worst, wrong = float("inf"), 0
    for question, (said, margin) in zip(questions, served.answer_all(asked)):
        worst = min(worst, margin)
        if said != question["answer"]:
            wrong += 1
            print(f"{question['messages'][-1]['content']!r}: {said!r}, not {question['answer']!r}")
    print(f"{len(questions)} questions, {wrong} answered otherwise, smallest margin {worst:.2f}")


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("gguf")
    args.add_argument("--check", help="a file of questions and answers")
    args.add_argument("--show", type=int, default=0, help="wrong answers to show of each kind")
    args = args.parse_args()
    served = Served(args.gguf)
    if args.check:
        check(served, args.check)
    else:
        measure(served, args.show)


if __name__ == "__main__":
    main()
