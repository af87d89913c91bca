"""The vocabulary: a byte-level BPE trained on the generated text, digits one by one.

It is laid out so that copying is easy. Letters are merged before anything else, so that a word has
the same pieces after a space, after a quote and at the start of an answer; and for every merge of
small letters there is the same one of capitals, so that a word has the same pieces in both cases.
"""

from collections import Counter
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

SIZE = 1536
LETTERS = 820  # entries for pieces of words; the rest are those pieces after a space, and signs
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# The pre-tokenizer that GGUF files call "qwen2": a GPT-2 descendant where a digit stands alone.
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def pre_tokenizer():
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def is_word(piece):
    return piece.isascii() and piece.isalpha()


def merged(pieces, pair):
    out, i = [], 0
    while i < len(pieces):
        if pieces[i:i + 2] == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(pieces[i])
            i += 1
    return tuple(out)


def commonest(counts, allowed):
    pairs = Counter()
    for pieces, count in counts.items():
        for pair in zip(pieces, pieces[1:]):
            if allowed(*pair):
                pairs[pair] += count
    return max(pairs, key=lambda pair: (pairs[pair], pair))


def apply(counts, pair):
    out = Counter()
    for pieces, count in counts.items():
        out[merged(pieces, pair)] += count
    return out


def folded(word):
    """A word in capitals counts as one in small letters: it gets the same merges."""
    return word.lower() if word.isupper() and len(word) > 1 else word


def train(texts):
    """A tokenizer from an iterable of texts that hold no special tokens."""
    cut = pre_tokenizer()
    seen = Counter(piece for text in texts for piece, _ in cut.pre_tokenize_str(text))
    chunks = Counter({tuple(piece): n for piece, n in seen.items() if n > 2})
    words = Counter()
    for piece, n in chunks.items():
        letters = "".join(c for c in piece if is_word(c))
        if letters:
            words[tuple(folded(letters))] += n
    entries = dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()))
    merges = []

    def add(pair):
        merges.append(pair)
        entries[pair[0] + pair[1]] = None

    bytes_only = len(entries)
    while len(entries) < bytes_only + LETTERS:
        pair = commonest(words, lambda a, b: True)
        add(pair)
        words = apply(words, pair)
        if (pair[0] + pair[1]).islower():
            add((pair[0].upper(), pair[1].upper()))
    for pair in merges:
        chunks = apply(chunks, pair)
    while len(entries) < SIZE - len(SPECIAL):
        pair = commonest(chunks, lambda a, b: not (any(map(is_word, a)) and is_word(b[0])))
        add(pair)
        chunks = apply(chunks, pair)
    tok = Tokenizer(models.BPE({piece: i for i, piece in enumerate(entries)}, merges))
    tok.pre_tokenizer = pre_tokenizer()
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    return tok


def load(path):
    return Tokenizer.from_file(str(Path(path)))


if __name__ == "__main__":
    import sys

    from generate import Generator, plain_texts

    trained = train(plain_texts(Generator(seed=1), 20_000))
    trained.save(sys.argv[1])
    print(f"{trained.get_vocab_size()} entries in {sys.argv[1]}")
