"""Puts tasks together into conversations, and conversations into rows of token ids.

    python generate.py --seed 1 --count 5          print some conversations, as the model sees them

The same seed gives the same text. A conversation is a list of Message; `weight` is how much the
loss of an answer counts (nothing but answers is learnt, apart from plain lines of sums).
"""

import argparse
import json
import random
from collections import namedtuple

import numpy as np

import tables as t
import tasks
import vocab

Message = namedtuple("Message", "role content weight")

# Share of each ability in general conversation, apart from sums, and the weight of its loss. A
# story is mostly chance and long: its many unpredictable words must not drown the rest.
ABILITIES = {
    tasks.fact: (120, 1.0), tasks.repeat: (6, 0.5), tasks.capitals: (6, 0.5),
    tasks.reverse: (7, 0.7), tasks.spell: (4, 0.5), tasks.count: (12, 1.0),
    tasks.json_object: (9, 0.4), tasks.json_capital: (2, 0.4), tasks.small_talk: (6, 0.7),
    tasks.unknown: (2, 0.5), tasks.story: (16, 0.3),
}
REMEMBER_WEIGHT = 0.7
TOOL_WEIGHT = 1.0
SUM_WEIGHT = 2.0  # the answers are short

# In rows of random tokens, bytes that no text here has stand for "here", "again", "backwards".
HERE, AGAIN, BACKWARDS = 253, 254, 255
PLAIN_SYSTEMS = ["You are a helpful assistant.", "You are weir-nano, a very small language model.",
                 "You are weir-nano.", "Be helpful.", "Answer briefly."]
CAPITAL_SYSTEMS = ["Answer in capital letters.", "Always answer in capital letters.",
                   "Write only in capital letters.",
                   "You are a helpful assistant. Answer in capital letters."]
WORD_SYSTEMS = ["Answer in one word.", "Answer with one word only."]
JSON_SYSTEMS = ["Answer with a JSON object.", "Answer in JSON."]


# Rows of nothing but these teach to copy; what is told and tools come with them.
COPYING = {tasks.repeat: 4, tasks.capitals: 3, tasks.reverse: 4, tasks.spell: 2, tasks.count: 4,
           tasks.json_object: 4}


class Generator:
    """Draws conversations. `sums` is the share of arithmetic among the turns of general ones."""

    def __init__(self, seed, sums=0.3):
        self.rng = random.Random(seed)
        self.sums = sums
        self.tasks = list(ABILITIES)
        self.shares = [share for share, _ in ABILITIES.values()]

    def only_sums(self, turns):
        """Sums alone: a conversation of them, or plain lines."""
        if self.rng.random() < 0.4:
            return "\n".join(tasks.arithmetic_line(self.rng) for _ in range(2 * turns)) + "\n"
        return self.dialogue(self.sum_turns(turns))

    def only_copies(self, turns):
        """Nothing but what is found in the question, or was told before."""
        rng, out = self.rng, []
        while len(out) < turns:
            if rng.random() < 0.25:
                told, asked = tasks.remember(rng)
                between = [turn for _ in range(rng.randint(0, 2))
                           for turn in self.copy_task()(rng)]
                out += [told, *between, asked]
            else:
                out += self.copy_task()(rng)
        return self.dialogue([turn + (1.0,) for turn in out])

    def only_tools(self, _):
        return self.with_tools(talk=0.1)

    def copy_task(self):
        return self.rng.choices(list(COPYING), COPYING.values())[0]

    def document(self, turns):
        """One conversation of about this many turns, or now and then a few plain lines of sums."""
        rng = self.rng
        if rng.random() < 0.2 * self.sums:
            return self.only_sums(turns)
        style = rng.random()
        if style < 0.20:
            return self.in_capitals(turns)
        if style < 0.24:
            return self.in_a_word(turns)
        if style < 0.27:
            return self.in_json(turns)
        if style < 0.33:
            return self.with_tools()
        system = rng.choice(PLAIN_SYSTEMS) if rng.random() < 0.45 else None
        return self.dialogue(self.general_turns(turns), system)

    def dialogue(self, turns, system=None):
        """[(question, answer, weight)] as messages."""
        messages = [Message("system", system, 0)] if system else []
        for question, answer, weight in turns:
            messages += [Message("user", question, 0), Message("assistant", answer, weight)]
        return messages

    def sum_turns(self, count):
        return [turn + (SUM_WEIGHT,) for _ in range(count)
                for turn in tasks.arithmetic(self.rng)]

    def general_turns(self, count):
        """Runs of sums between the other abilities; sometimes something is told and asked later."""
        rng, turns = self.rng, []
        # A run of sums is 3.5 turns long on average, so it is begun that much more rarely.
        begin = self.sums / (self.sums + 3.5 * (1 - self.sums))
        while len(turns) < count:
            if rng.random() < begin:
                turns += self.sum_turns(rng.randint(1, 6))
            else:
                task = rng.choices(self.tasks, self.shares)[0]
                turns += [turn + (ABILITIES[task][1],) for turn in task(rng)]
        if rng.random() < 0.2:
            told, asked = (turn + (REMEMBER_WEIGHT,) for turn in tasks.remember(rng))
            at = rng.randint(0, len(turns))
            turns.insert(rng.randint(at, min(len(turns), at + 4)), asked)
            turns.insert(at, told)
        return turns

    def in_capitals(self, count):
        turns = []
        for _ in range(count):
            task = self.rng.choice([tasks.fact] * 5 + [tasks.arithmetic, tasks.repeat,
                                                       tasks.small_talk, tasks.story])
            weight = 0.3 if task is tasks.story else 1.0
            turns += [(q, a.upper(), weight) for q, a in task(self.rng)]
        return self.dialogue(turns, self.rng.choice(CAPITAL_SYSTEMS))

    def in_a_word(self, count):
        draw = self.rng.choice
        known = [tasks.fact_in_a_word, tasks.fact_in_a_word, tasks.arithmetic]
        turns = [turn + (0.7,) for _ in range(count) for turn in draw(known)(self.rng)]
        return self.dialogue(turns, draw(WORD_SYSTEMS))

    def in_json(self, count):
        turns = []
        for _ in range(count):
            if self.rng.random() < 0.5:
                (question, answer), = tasks.arithmetic(self.rng)
                value = int(answer)
            else:
                (question, value), = tasks.fact_in_a_word(self.rng)
            turns.append((question, json.dumps({"answer": value}), 0.7))
        return self.dialogue(turns, self.rng.choice(JSON_SYSTEMS))

    def with_tools(self, talk=0.3):
        """The weather or the time of a city is asked of a tool; other questions are not."""
        rng = self.rng
        tools = TOOLS if rng.random() < 0.5 else [rng.choice(TOOLS)]
        key = tasks.made_up(rng) if rng.random() < 0.6 else rng.choice(["city", "location", "place"])
        messages = [Message("system", tool_system(rng, tools, key), 0)]
        for _ in range(rng.randint(1, 2)):
            if rng.random() < talk:
                task = rng.choice([tasks.fact, tasks.arithmetic, tasks.small_talk])
                messages += self.dialogue([turn + (0.7,) for turn in task(rng)])
            else:
                messages += tool_turn(rng, rng.choice(tools), key)
        return messages


# ---- tools ------------------------------------------------------------------------------------

Tool = namedtuple("Tool", "name about questions")
TOOLS = [
    Tool("get_weather", ["Get the weather of a city.", "Get the current weather.",
                         "Get the current weather in a given city."],
         ["What is the weather in {}?", "What is the weather like in {}?",
          "How is the weather in {}?", "Tell me the weather in {}.", "Weather in {}?"]),
    Tool("get_time", ["Get the time of a city.", "Get the current time."],
         ["What time is it in {}?", "What is the time in {}?", "Tell me the time in {}."]),
]
TOOL_RULES = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
SKIES = "sunny cloudy rainy windy snowy foggy".split()


def tool_system(rng, tools, key):
    """The system prompt in the Hermes manner, or a short form of it."""
    lines = []
    for tool in tools:
        place = {"type": "string"}
        if rng.random() < 0.3:
            place["description"] = rng.choice(["The city", "The name of the city", "City name"])
        function = {"name": tool.name, "description": rng.choice(tool.about),
                    "parameters": {"type": "object", "properties": {key: place}, "required": [key]}}
        if rng.random() < 0.15:
            del function["description"]
        lines.append(json.dumps({"type": "function", "function": function}))
    text = "\n".join(lines)
    if rng.random() < 0.3:
        return rng.choice(["You have these tools:\n", "Tools:\n"]) + text
    before = "You are a helpful assistant.\n\n" if rng.random() < 0.4 else ""
    return before + TOOL_RULES.format(text)


def tool_turn(rng, tool, key):
    city = tasks.value(rng, t.CITIES + list(t.CAPITALS.values()))
    call = json.dumps({"name": tool.name, "arguments": {key: city}})
    messages = [Message("user", rng.choice(tool.questions).format(city), 0),
                Message("assistant", f"<tool_call>\n{call}\n</tool_call>", TOOL_WEIGHT)]
    if rng.random() < 0.6:
        if tool.name == "get_weather":
            degrees, sky = rng.randint(0, 35), rng.choice(SKIES)
            reply = json.dumps({"temperature": degrees, "condition": sky})
            answer = f"It is {sky} and {degrees} degrees in {city}."
        else:
            now = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
            reply, answer = json.dumps({"time": now}), f"It is {now} in {city}."
        if rng.random() < 0.7:
            messages.append(Message("tool", reply, 0))
        else:
            messages.append(Message("user", f"<tool_response>\n{reply}\n</tool_response>", 0))
        messages.append(Message("assistant", answer, TOOL_WEIGHT))
    return messages


# ---- text and token ids -----------------------------------------------------------------------

def chatml(messages, ask=False):
    """The text of some messages; with `ask` it ends where the next answer begins."""
    text = "".join(f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in messages)
    return text + "<|im_start|>assistant\n" if ask else text


def plain_texts(generator, count):
    """Texts without special tokens, to train a vocabulary on."""
    for _ in range(count):
        document = generator.rng.choice([generator.document, generator.only_copies])(2)
        if isinstance(document, str):
            yield document
        else:
            for message in document:
                yield f"{message.role}\n"
                yield message.content


class Packer:
    """Fills rows of token ids with whole conversations, <|endoftext|> after each."""

    def __init__(self, tokenizer, generator):
        self.tok, self.gen = tokenizer, generator
        self.end_of_text, self.start, self.end = map(
            tokenizer.token_to_id, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
        self.newline, self.equals = (tokenizer.encode(x).ids for x in ("\n", "="))
        self.assistant = tokenizer.encode("assistant\n").ids

    def encode(self, document):
        """Ids, and for each the weight of the loss when it is to be predicted."""
        if isinstance(document, str):
            ids, weights = [], []
            for line in document.splitlines():
                asked, answer = (self.tok.encode(x).ids for x in line.split("=", 1))
                answer += self.newline
                ids += asked + self.equals + answer
                weights += [0.0] * (len(asked) + 1) + [1.0] * len(answer)
            return ids + [self.end_of_text], weights + [0.02]
        ids = self.tok.encode(chatml(document)).ids
        weights = [0.0] * len(ids)
        answers = iter([m.weight for m in document if m.role == "assistant"])
        skip = 1 + len(self.assistant)
        for i in [i for i, x in enumerate(ids) if x == self.start]:
            if ids[i + 1:i + skip] == self.assistant:
                end = ids.index(self.end, i)
                weights[i + skip:end + 1] = [next(answers)] * (end + 1 - i - skip)
        return ids + [self.end_of_text], weights + [0.05]

    def random_tokens(self):
        """Random tokens, and the same again: only the second time can they be known."""
        return self.random_copy(15, AGAIN, tasks.REPEAT_ASKS, lambda ids: ids)

    def random_backwards(self):
        """Random tokens, and then from the last to the first."""
        return self.random_copy(10, BACKWARDS, tasks.REVERSE_ASKS, lambda ids: ids[::-1])

    def random_copy(self, longest, then, asks, turned):
        """Half of them bare, half in the place of the words in a question."""
        rng = self.gen.rng
        ids = rng.choices(range(vocab.SIZE - len(vocab.SPECIAL)), k=rng.randint(3, longest))
        if rng.random() < 0.5:
            before, between, after = [HERE], [then], []
        else:
            question = Message("user", rng.choice(asks).format("").rstrip(), 0)
            asked = self.tok.encode(chatml([question], ask=True)).ids
            at = asked.index(self.end)
            before, between, after = asked[:at], asked[at:], [self.end] + self.newline
        learnt = turned(ids) + after
        return before + ids + between + learnt, (
            [0.0] * (len(before) + len(ids) + len(between)) + [1.0] * len(learnt))

    def row(self, kind, length, turns):
        """Enough ids and weights for a row: whole conversations, or random tokens."""
        ids, weights = [], []
        while len(ids) <= length:
            if hasattr(self, kind):
                more = getattr(self, kind)()
            else:
                more = self.encode(getattr(self.gen, kind)(self.gen.rng.randint(1, turns)))
            ids += more[0]
            weights += more[1]
        return ids, weights

    def rows(self, shares, count, length, turns):
        """Arrays [count, length + 1] of ids and of weights; a row is of one kind of `shares`."""
        all_ids = np.zeros((count, length + 1), np.int64)
        all_weights = np.zeros((count, length + 1), np.float32)
        for r in range(count):
            kind, = self.gen.rng.choices(list(shares), shares.values())
            ids, weights = self.row(kind, length, turns)
            all_ids[r], all_weights[r] = ids[:length + 1], weights[:length + 1]
        return all_ids, all_weights


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--count", type=int, default=5)
    args = args.parse_args()
    generator = Generator(args.seed)
    for _ in range(args.count):
        document = generator.document(generator.rng.randint(1, 5))
        print(document if isinstance(document, str) else chatml(document))


if __name__ == "__main__":
    main()
