"""The vocabulary: a byte-level BPE trained on the generated text, digits one by one."""

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SIZE = 1536
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# The pre-tokenizer that GGUF files call "qwen2": a GPT-2 descendant where a digit stands alone.
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(texts):
    """A tokenizer from an iterable of texts that hold no special tokens."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SIZE - len(SPECIAL), min_frequency=2,
                                  show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(texts, trainer)
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    return tok


def load(path):
    return Tokenizer.from_file(str(Path(path)))


if __name__ == "__main__":
    import sys

    from generate import Generator, plain_texts

    texts = plain_texts(Generator(seed=1), 60_000)
    trained = train(texts)
    trained.save(sys.argv[1])
    print(f"{trained.get_vocab_size()} entries in {sys.argv[1]}")
