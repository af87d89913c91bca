"""Write the seeds of the fuzzer of request bodies: a byte for the route, and the body.

    python3 make_corpus_api.py [FOLDER]        (default: corpus/api beside this file)
"""

import json

import seeds

COMPLETIONS, CHAT = b"0", b"1"
PROMPT = {"prompt": "a"}
HI = {"messages": [{"role": "user", "content": "hi"}]}


def body(route, fields):
    return route + (fields if isinstance(fields, bytes) else json.dumps(fields).encode())


SEEDS = {
    "prompt": body(COMPLETIONS, PROMPT),
    "prompts": body(COMPLETIONS, {"prompt": ["a", "b"], "n": 2, "best_of": 2}),
    "ids": body(COMPLETIONS, {"prompt": [1, 2, 3], "echo": True, "logprobs": 3}),
    "many_ids": body(COMPLETIONS, {"prompt": [[1], [2, 3]]}),
    "sampling": body(COMPLETIONS, PROMPT | {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "repeat_penalty": 1.1,
        "presence_penalty": 1, "frequency_penalty": -1, "seed": 7, "logit_bias": {"1": -100}}),
    "ends": body(COMPLETIONS, PROMPT | {
        "stop": ["x", "yz"], "stop_token_ids": [1, 2], "max_tokens": 9, "ignore_eos": True,
        "return_tokens": True, "cache_prompt": False, "cache_salt": "s", "priority": -3}),
    "stream": body(CHAT, HI | {"stream": True, "stream_options": {"include_usage": True}}),
    "chat": body(CHAT, {"messages": [{"role": "system", "content": "s"},
                                     {"role": "user", "content": [{"type": "text", "text": "t"}]},
                                     {"role": "assistant", "content": None}]}),
    "chat_logprobs": body(CHAT, HI | {"logprobs": True, "top_logprobs": 2,
                                      "max_completion_tokens": 3}),
    "tools": body(CHAT, HI | {"tools": [], "tool_choice": "none", "modalities": ["text"],
                              "response_format": {"type": "text"}}),
    "refused": body(CHAT, HI | {"grammar": "x", "min_tokens": 1}),
    "wrong_types": body(COMPLETIONS, {"prompt": {}, "n": "1", "stop": 1, "logit_bias": []}),
    "numbers": body(COMPLETIONS, b'{"prompt": "a", "n": 1e0, "seed": 9223372036854775807,'
                                 b' "temperature": 1e999, "top_k": -1}'),
    "twice": body(COMPLETIONS, b'{"prompt": "a", "prompt": "b"}'),
    "escapes": body(CHAT, b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00\\u00e9\\n"}]}'),
    "surrogate": body(COMPLETIONS, b'{"prompt": "\\ud800"}'),
    "nul": body(COMPLETIONS, b'{"prompt": "\\u0000"}'),
    "not_utf8": body(COMPLETIONS, b'{"prompt": "\xff"}'),
    "cut_character": body(CHAT, {"messages": [{"role": "x" + "\u20ac" * 20, "content": ""}]}),
    "deep": body(COMPLETIONS, b'{"prompt": ' + b"[" * 50 + b"]" * 50 + b"}"),
    "empty": COMPLETIONS,
}

if __name__ == "__main__":
    seeds.write("api", ".bin", SEEDS)
