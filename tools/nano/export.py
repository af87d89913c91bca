"""Writes a trained model as GGUF, its matrices in Q8_0, its norms in F32.

    python export.py DIR weir-nano.gguf        DIR is what train.py wrote
"""

import argparse
import json
from pathlib import Path

import gguf
import torch

import vocab

CONTEXT = 2048
CHAT_TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
                 "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def add_shape(writer, shape):
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape["width"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["ffn"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(shape["eps"])
    writer.add_rope_dimension_count(shape["width"] // shape["heads"])
    writer.add_rope_freq_base(shape["rope_base"])
    writer.add_vocab_size(shape["vocab"])


def add_vocabulary(writer, path):
    model = json.loads(path.read_text())["model"]
    tokenizer = vocab.load(path)
    count = tokenizer.get_vocab_size()
    special = {tokenizer.token_to_id(s) for s in vocab.SPECIAL}
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([tokenizer.id_to_token(i) for i in range(count)])
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL
                            for i in range(count)])
    writer.add_token_merges(merges)
    end_of_text, end_of_turn = map(tokenizer.token_to_id, ("<|endoftext|>", "<|im_end|>"))
    writer.add_bos_token_id(end_of_text)
    writer.add_eos_token_id(end_of_turn)
    writer.add_eot_token_id(end_of_turn)
    writer.add_pad_token_id(end_of_text)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_tensors(writer, weights):
    for name, value in weights.items():
        value = value.float().numpy()
        kind = gguf.GGMLQuantizationType.Q8_0 if value.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    args.add_argument("trained", type=Path)
    args.add_argument("gguf", type=Path)
    args = args.parse_args()
    state = torch.load(args.trained / "model.pt")
    writer = gguf.GGUFWriter(args.gguf, "llama")
    writer.add_name("weir-nano")
    writer.add_license("mit")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_shape(writer, state["shape"])
    add_vocabulary(writer, args.trained / "vocab.json")
    add_tensors(writer, state["model"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{args.gguf}: {args.gguf.stat().st_size} bytes")


if __name__ == "__main__":
    main()
