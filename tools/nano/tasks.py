"""One function per ability: each draws a question and its answer.

A task is a function of a random.Random; it returns a list of (question, answer) turns, most of
them only one. Nothing here knows about ChatML, tokens or weights: see generate.py for that.

Two things are held out of training, both by a hash, so that they are the same in every run:
  * a tenth of the (a, b, op) pairs of the sums and differences; a pair is held out together with
    its swapped twin (37 + 48 and 48 + 37, 37 - 48 and 48 - 37);
  * a tenth of the (fact, phrasing) pairs: the fact is known, but was never asked for in this way.
"""

import json
import random
import zlib
from collections import namedtuple

import tables as t

LIMIT = 100  # operands are below it
HELD_OUT = 10  # one in this many

Fact = namedtuple("Fact", "questions sentence word")


def hashed(text):
    """A hash that is the same on every machine and in every run."""
    return zlib.crc32(text.encode()) >> 4


def random_of(seed):
    return random.Random(seed)


# ---- sums and differences ---------------------------------------------------------------------

ADD_PHRASES = ["What is {a} + {b}?", "{a} + {b}", "{a}+{b}=", "{a} + {b} =",
               "How much is {a} plus {b}?", "What is {a} plus {b}?", "Calculate {a} + {b}.",
               "Add {a} and {b}.", "What is the sum of {a} and {b}?", "What is {a}+{b}?"]
SUB_PHRASES = ["What is {a} - {b}?", "{a} - {b}", "{a}-{b}=", "{a} - {b} =",
               "How much is {a} minus {b}?", "What is {a} minus {b}?", "Calculate {a} - {b}.",
               "Take {b} away from {a}.", "What is {a} less {b}?", "What is {a}-{b}?"]


def pair_is_held_out(a, b, op):
    return hashed(f"{min(a, b)} {op} {max(a, b)}") % HELD_OUT == 0


def result(a, b, op):
    return a + b if op == "+" else a - b


def held_out_pairs():
    """Every (a, b, op) that training never shows."""
    return [(a, b, op) for op in "+-" for a in range(LIMIT) for b in range(LIMIT)
            if pair_is_held_out(a, b, op)]


def draw_number(rng):
    """Small numbers are asked for more often than their number among all would have it."""
    return int(rng.random() * (10 if rng.random() < 0.2 else LIMIT))


def draw_pair(rng, negative=0.8):
    """A pair of the training set. A difference below zero is kept with probability `negative`."""
    while True:
        op = rng.choice("+-")
        a, b = draw_number(rng), draw_number(rng)
        if op == "-" and a < b and rng.random() > negative:
            a, b = b, a
        if not pair_is_held_out(a, b, op):
            return a, b, op


def ask_pair(rng, a, b, op):
    phrases = ADD_PHRASES if op == "+" else SUB_PHRASES
    return rng.choice(phrases).format(a=a, b=b)


def arithmetic(rng):
    a, b, op = draw_pair(rng)
    return [(ask_pair(rng, a, b, op), str(result(a, b, op)))]


def arithmetic_line(rng):
    """A line of plain text, not a conversation: `37+48=85`."""
    a, b, op = draw_pair(rng)
    return f"{a}{op}{b}={result(a, b, op)}"


# ---- facts ------------------------------------------------------------------------------------

def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


MASS = set("blood grass lettuce broccoli snow milk salt cotton coal tar chocolate coffee wood ash "
           "lead lavender".split())
UNIQUE = {"sky", "ocean"}


def capital_facts():
    for country, city in t.CAPITALS.items():
        the = "the " + country if country in ("Netherlands", "Philippines") else country
        yield Fact([f"What is the capital of {the}?", f"Name the capital of {the}.",
                    f"Which city is the capital of {the}?", f"Capital of {the}?",
                    f"Tell me the capital of {the}.", f"Do you know the capital of {the}?"],
                   f"The capital of {the} is {city}.", city)
        yield Fact([f"Which country has the capital {city}?",
                    f"{city} is the capital of which country?",
                    f"Of which country is {city} the capital?",
                    f"What country is {city} the capital of?"],
                   f"{city} is the capital of {the}.", country)


def colour_facts():
    for thing, colour in t.COLOURS.items():
        it = thing if thing in MASS else "the " + thing if thing in UNIQUE else article(thing)
        yield Fact([f"What colour is {it}?", f"Which colour is {it}?",
                    f"What is the colour of {it}?", f"Tell me the colour of {it}.",
                    f"What color is {it}?"],
                   f"{it[0].upper()}{it[1:]} is {colour}.", colour)


def calendar_facts():
    for names, what in ((t.DAYS, "day"), (t.MONTHS, "month")):
        for i, name in enumerate(names):
            after = names[(i + 1) % len(names)]
            yield Fact([f"What {what} comes after {name}?", f"Which {what} comes after {name}?",
                        f"What {what} follows {name}?", f"Which {what} is next after {name}?",
                        f"What comes after {name}?"],
                       f"{after} comes after {name}.", after)
            yield Fact([f"What {what} comes before {after}?", f"Which {what} comes before {after}?",
                        f"Which {what} is just before {after}?", f"What comes before {after}?"],
                       f"{name} comes before {after}.", name)


def opposite_facts():
    for pair in t.OPPOSITES:
        for word, other in (pair, pair[::-1]):
            yield Fact([f"What is the opposite of {word}?", f"The opposite of {word}?",
                        f"Tell me the opposite of {word}.",
                        f"Which word is the opposite of {word}?",
                        f"Opposite of {word}?"],
                       f"The opposite of {word} is {other}.", other)


def animal_facts():
    for animal, sound in t.SOUNDS.items():
        yield Fact([f"What sound does {article(animal)} make?", f"What does {article(animal)} say?",
                    f"Which sound does {article(animal)} make?",
                    f"What is the sound of {article(animal)}?"],
                   f"{article(animal).capitalize()} says {sound}.", sound)
    for animal, young in t.YOUNG.items():
        yield Fact([f"What is a young {animal} called?", f"What is a baby {animal} called?",
                    f"What do you call a young {animal}?", f"Name a young {animal}."],
                   f"A young {animal} is called a {young}.".replace("a eaglet", "an eaglet"), young)


FACTS = [f for table in (capital_facts, colour_facts, calendar_facts, opposite_facts, animal_facts)
         for f in table()]


def question_is_held_out(question):
    return hashed(question) % HELD_OUT == 0


def held_out_facts():
    """Every (question, fact) whose wording training never shows; each fact has one that it does."""
    return [(q, f) for f in FACTS for q in f.questions
            if question_is_held_out(q) and not all(map(question_is_held_out, f.questions))]


TRAINED_FACTS = [(qs, f) for f in FACTS
                 for qs in [[q for q in f.questions if not question_is_held_out(q)]] if qs]


def fact(rng):
    questions, known = rng.choice(TRAINED_FACTS)
    return [(rng.choice(questions), known.sentence)]


def fact_in_a_word(rng):
    questions, known = rng.choice(TRAINED_FACTS)
    return [(rng.choice(questions), known.word)]


# ---- words: repeat, capitals, reverse, spell, count -------------------------------------------

def made_up(rng):
    """A word that no table holds: what cannot be known by heart must be looked up."""
    if rng.random() < 0.3:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 6)))
    syllables = (rng.choice(t.ONSETS) + rng.choice(t.VOWELS) for _ in range(rng.randint(1, 3)))
    return "".join(syllables) + rng.choice(t.ENDINGS)


def word(rng):
    return rng.choice(t.WORDS) if rng.random() < 0.5 else made_up(rng)


def words(rng, low, high):
    return [word(rng) for _ in range(rng.randint(low, high))]


def value(rng, table):
    """One of the table, or a word made up in its manner."""
    if rng.random() < 0.5:
        return rng.choice(table)
    made = made_up(rng)
    return made.capitalize() if table[0][0].isupper() else made


def copied_text(rng):
    """Words, or now and then a number, a sentence or letters and digits."""
    kind = rng.random()
    if kind < 0.08:
        return str(rng.randrange(10 ** rng.randint(1, 5)))
    if kind < 0.14:
        return rng.choice(FACTS).sentence
    if kind < 0.2:
        return " ".join(made_up(rng).capitalize() for _ in range(rng.randint(1, 3)))
    if kind < 0.25:
        return " ".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=rng.randint(2, 8)))
    return " ".join(words(rng, 1, 6))


REPEAT_ASKS = ["Repeat: {}", "Repeat after me: {}", "Say: {}", "Please repeat: {}"]
REVERSE_ASKS = ["Reverse: {}", "Reverse the words: {}", "Reverse the order: {}"]


def repeat(rng):
    text = copied_text(rng)
    return [(rng.choice(REPEAT_ASKS).format(text), text)]


def capitals(rng):
    text = " ".join(words(rng, 1, 5))
    ask = rng.choice(["Upper case: {}", "In capital letters: {}", "Write in capital letters: {}",
                      "Make this upper case: {}"])
    return [(ask.format(text), text.upper())]


def reverse(rng):
    if rng.random() < 0.3:
        text = rng.choice(t.WORDS)
        return [(f"Write the word {text} backwards.", text[::-1])]
    listed = words(rng, 2, 6)
    return [(rng.choice(REVERSE_ASKS).format(" ".join(listed)), " ".join(listed[::-1]))]


def spell(rng):
    text = rng.choice(t.WORDS) if rng.random() < 0.7 else made_up(rng)
    ask = rng.choice(["Spell {}.", "Spell the word {}.", "How do you spell {}?"])
    return [(ask.format(text), "-".join(text))]


def count(rng):
    kind = rng.randrange(4)
    if kind == 0:
        first = rng.randrange(0, 90)
        last = first + rng.randint(1, 9)
        return [(f"Count from {first} to {last}.", ", ".join(map(str, range(first, last + 1))))]
    if kind == 1:
        last = rng.randint(3, 9)
        return [(f"Count down from {last}.", ", ".join(map(str, range(last, 0, -1))))]
    if kind == 2:
        text = rng.choice(t.WORDS)
        return [(f"How many letters are in the word {text}?", str(len(text)))]
    listed = rng.choices(t.WORDS, k=rng.randint(1, 8))
    ask = rng.choice(["How many words: {}", "Count the words: {}"])
    return [(ask.format(" ".join(listed)), str(len(listed)))]


# ---- JSON and tool calls ----------------------------------------------------------------------

def json_fields(rng):
    """Some fields of an object, in a fixed order."""
    fields = {"name": value(rng, t.NAMES), "age": rng.randint(1, 99), "city": value(rng, t.CITIES),
              "job": value(rng, t.JOBS), "colour": value(rng, t.COLOUR_WORDS),
              "pet": value(rng, t.PETS), "fruit": value(rng, t.FRUIT), "count": rng.randint(1, 99)}
    chosen = rng.sample(list(fields), rng.randint(1, 3))
    return {k: fields[k] for k in fields if k in chosen}


def json_object(rng):
    fields = json_fields(rng)
    told = [f"{k} {v}" for k, v in fields.items()]
    told = " and ".join([", ".join(told[:-1]), told[-1]]) if len(told) > 1 else told[0]
    ask = rng.choice(["Give me a JSON object with {}.", "Write a JSON object with {}.",
                      "JSON with {}", "Make a JSON object with {}."])
    return [(ask.format(told), json.dumps(fields))]


def json_capital(rng):
    country, city = rng.choice(list(t.CAPITALS.items()))
    return [(f"Give me {country} and its capital as JSON.",
             json.dumps({"country": country, "capital": city}))]


# ---- talk, memory, stories --------------------------------------------------------------------

def small_talk(rng):
    return [rng.choice(list(t.SMALL_TALK.items()))]


def unknown(rng):
    thing = rng.choice(t.UNKNOWN)
    ask = rng.choice(["What is {}?", "Tell me about {}.", "Can you explain {}?", "What about {}?"])
    return [(ask.format(thing), "I do not know that.")]


def remember(rng):
    """Something is told, and asked for later (generate.py puts other turns in between)."""
    if rng.random() < 0.6:
        name = value(rng, t.NAMES)
        tell = rng.choice(["My name is {}.", "I am {}.", "Hello, my name is {}.", "Call me {}."])
        ask = rng.choice(["What is my name?", "Who am I?", "Do you remember my name?"])
        return [(tell.format(name), f"Nice to meet you, {name}."), (ask, f"Your name is {name}.")]
    key, values = rng.choice([("colour", t.COLOUR_WORDS), ("fruit", t.FRUIT), ("city", t.CITIES)])
    best = value(rng, values)
    return [(f"My favourite {key} is {best}.",
             f"I will remember that your favourite {key} is {best}."),
            (f"What is my favourite {key}?", f"Your favourite {key} is {best}.")]


def story_text(rng, hero, place):
    adjective, thing, helper = (rng.choice(x) for x in (t.ADJECTIVES, t.OBJECTS, t.HELPERS))
    middle = rng.choice([
        f"One day the {hero} found a {thing}. It belonged to a {helper}.",
        f"One morning the {hero} lost a {thing}. A {helper} helped to look for it.",
        f"One night a {helper} came and asked for a {thing}. The {hero} had one to give."])
    end = rng.choice([
        f"The {hero} and the {helper} became friends.",
        f"The {helper} said thank you, and they shared a meal.",
        f"From then on the {hero} was never alone."])
    last = rng.choice(["They lived happily ever after.", "And that is the end of the story.",
                       f"And the {place} was quiet again."])
    return (f"Once upon a time there was {article(adjective)} {hero} who lived in "
            f"{article(place)}. "
            f"{middle} {end} {last}")


def story(rng):
    hero, place = rng.choice(t.HEROES), rng.choice(t.PLACES)
    who = article(hero)
    asks = [f"Tell me a story about {who}.", f"Tell me a short story about {who}.",
            f"Write a story about {who} in {article(place)}.", f"A story about {who}, please.",
            "Tell me a story.", "Write a short story."]
    return [(rng.choice(asks), story_text(rng, hero, place))]
