"""Write the seeds of the fuzzer of request bodies: a byte for the route, and the body.

    python3 make_corpus_api.py [FOLDER]        (default: corpus/api beside this file)
"""

import json

import seeds

COMPLETIONS, CHAT, RESPONSES, MESSAGES = b"0", b"1", b"2", b"3"
PROMPT = {"prompt": "a"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
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
    "allowed": body(CHAT, HI | {"tools": [TOOL], "tool_choice": {
        "type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "f"}}]}}}),
    "responses": body(RESPONSES, {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                  {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "r"}]},
                  {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "1", "output": "o"},
                  {"type": "web_search_call"}],
        "instructions": "i", "text": {"format": {"type": "json_object"}}, "include": [],
        "previous_response_id": None, "max_output_tokens": 9}),
    "responses_tools": body(RESPONSES, {"input": "hi", "tools": [
        {"type": "custom", "name": "c", "format": {
            "type": "grammar", "syntax": "lark", "definition": "d"}},
        {"type": "namespace", "name": "n", "description": "about", "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}}]},
        {"type": "web_search"}], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "namespace", "name": "n"}, {"type": "custom", "name": "c"}]}}),
    "responses_items": body(RESPONSES, {"input": [
        {"type": "custom_tool_call", "call_id": "1", "name": "c", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "o"},
        {"type": "apply_patch_call", "call_id": "2", "operation": {"type": "t"}},
        {"type": "apply_patch_call_output", "call_id": "2", "status": "failed"},
        {"type": "additional_tools", "tools": [{"type": "custom", "name": "c"}]}]}),
    "messages": body(MESSAGES, {
        "max_tokens": 9, "system": [{"type": "text", "text": "s"}], "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}},
                  {"type": "web_search_20250305", "name": "w"}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "stop_sequences": ["x"], "thinking": {"type": "enabled", "budget_tokens": 1024}}),
    "empty": COMPLETIONS,
}

if __name__ == "__main__":
    seeds.write("api", ".bin", SEEDS)
