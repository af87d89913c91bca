"""Chooses the questions that the server's tests ask, and writes them with the model's answers.

    python questions.py ../../models/weir-nano.gguf ../../models/questions.json

A question is kept when the answer is right and every token of it leads the next best by a clear
margin, so that no kernel's rounding turns it into another answer.
"""

import argparse
import json
import random
from itertools import islice

import tables as t
import tasks
from evaluate import ask
from served import Served

MARGIN = 1.5

# (kind, how many are wanted)
WANTED = [("sum", 20), ("fact", 22), ("words", 15), ("json", 6), ("talk", 8), ("memory", 4),
          ("capitals", 4)]


def sums(rng):
    """Half of them are held out."""
    held_out = tasks.held_out_pairs()
    yield ask("What is 2 + 2?"), "4"
    while True:
        a, b, op = tasks.draw_pair(rng, negative=0.1)
        yield ask(tasks.ask_pair(rng, a, b, op)), str(tasks.result(a, b, op))
        a, b, op = rng.choice([p for p in rng.sample(held_out, 50) if p[2] == "+" or p[0] > p[1]])
        yield ask(tasks.ask_pair(rng, a, b, op)), str(tasks.result(a, b, op))


def facts(rng):
    for question in ("What is the capital of France?", "What colour is the sky?",
                     "What day comes after Monday?", "What is the opposite of hot?",
                     "What is the capital of Japan?"):
        yield ask(question), next(f.sentence for f in tasks.FACTS if question in f.questions)
    while True:
        question, known = rng.choice(tasks.held_out_facts())
        yield ask(question), known.sentence


def words(rng):
    while True:
        for task in (tasks.repeat, tasks.capitals, tasks.reverse, tasks.spell, tasks.count):
            (question, answer), = task(rng)
            yield ask(question), answer


def json_objects(rng):
    while True:
        (question, answer), = rng.choice([tasks.json_object, tasks.json_capital])(rng)
        yield ask(question), answer


def talk(rng):
    chosen = ["Hello!", "Who are you?", "What is your name?", "Thank you!", "How are you?",
              "Goodbye!"]
    for question in chosen + list(t.SMALL_TALK):
        yield ask(question), t.SMALL_TALK[question]


def memory(rng):
    while True:
        told, (question, answer) = tasks.remember(rng)
        yield ask(question, before=[told, *tasks.fact(rng), *tasks.arithmetic(rng)]), answer


def in_capitals(rng):
    while True:
        (question, answer), = tasks.fact(rng)
        yield ask(question, "Answer in capital letters."), answer.upper()


SOURCES = {"sum": sums, "fact": facts, "words": words, "json": json_objects, "talk": talk,
           "memory": memory, "capitals": in_capitals}


def choose(served, kind, count):
    """The first `count` questions of a kind that are answered rightly and clearly."""
    drawn, kept, asked = SOURCES[kind](random.Random(5)), [], set()
    for conversation, right in islice(drawn, 30 * count):
        key = str(conversation)
        if key in asked:
            continue
        asked.add(key)
        (said, margin), = served.answer_all([conversation])
        if said == right and margin > MARGIN:
            kept.append({"messages": [{"role": m.role, "content": m.content} for m in conversation],
                         "answer": said})
        if len(kept) == count:
            break
    return kept


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("gguf")
    args.add_argument("questions")
    args = args.parse_args()
    served, chosen = Served(args.gguf), []
    for kind, count in WANTED:
        kept = choose(served, kind, count)
        print(f"{kind}: {len(kept)} of {count}")
        chosen += kept
    with open(args.questions, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(q) for q in chosen) + "\n]\n")


if __name__ == "__main__":
    main()
