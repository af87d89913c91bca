#!/usr/bin/env python3
"""Write the first seeds of corpus/reply: make_corpus_reply.py FOLDER.

One reply for each format, with two calls where it can; its first byte is the format's place in
reply_format_list.
"""
import re
import sys
from pathlib import Path

CALL = '{"name": "f", "arguments": {"s": "a\\"}", "n": [1, {}]}}'
BARE = '{"name": "f", "parameters": {"s": "x"}}'
DSML = '<｜DSML｜{0}>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="s" string="true">x</｜DSML｜' \
       'parameter>\n</｜DSML｜invoke>\n</｜DSML｜{0}>'
M3 = ']<]minimax[>['
K3 = '<|open|>{0}<|sep|>{1}<|close|>{2}<|sep|>'
REPLIES = [
    ("hermes",
     f"<think>a</think>b <tool_call>\n{CALL}\n</tool_call>\n<tool_call>[{CALL}]</tool_call>"),
    ("llama3", f"<|python_tag|>{BARE}; {BARE}"),
    ("mistral", f'[TOOL_CALLS][{CALL}][TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{{"s": 1}}'),
    ("functionary-v3.1", '<function=f>{"s": 1}</function>'),
    ("functionary-v3.2", 'all\nhello>>>f\n{"s": 1}>>>python\nprint(1)'),
    ("deepseek",
     '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"s": 1}\n```'
     '<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'),
    ("deepseek-v3.2", DSML.format("function_calls")),
    ("deepseek-v4", DSML.format("tool_calls")),
    ("harmony",
     '<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f '
     '<|constrain|>json<|message|>{"s": 1}<|call|>'),
    ("kimi",
     '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}'
     '<|tool_call_end|><|tool_calls_section_end|>'),
    ("qwen-xml",
     '<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n<parameter=n>\n1\n</parameter>\n'
     '</function>\n</tool_call>'),
    ("glm", '<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n</tool_call>'),
    ("minimax",
     '<minimax:tool_call>\n<invoke name="f">\n<parameter name="n">1</parameter>\n</invoke>\n'
     '</minimax:tool_call>'),
    ("granite", f"<|tool_call|>[{CALL}]"),
    ("command-r7b", f"<|START_ACTION|>[{CALL}]<|END_ACTION|>"),
    ("apriel", f"<tool_calls>[{CALL}, {CALL}]</tool_calls>"),
    ("firefunction", f" functools[{CALL}]"),
    ("json", f"```json\n{BARE}\n```"),
    ("hermes", "<think>\nreasoning\n</think>\n\ncontent"),
    ("kimi-k3",
     K3.format("think", "a", "think") + K3.format("response", "b", "response")
     + K3.format("tools", K3.format('call tool="f" index="1"', K3.format(
         'argument key="s" type="string"', "x", "argument"), "call"), "tools")
     + "<|close|>message<|sep|>"),
    ("minimax-m3",
     f'</mm:think>{M3}<tool_call>\n{M3}<invoke name="f">{M3}<s>x{M3}</s>{M3}<o>{M3}<l>{M3}<item>1'
     f"{M3}</item>{M3}</l>{M3}</o>{M3}</invoke>\n{M3}</tool_call>"),
    ("minimax-m1", f"<tool_calls>\n{CALL}\n{CALL}\n</tool_calls>"),
    ("hunyuan", f"<think>\na\n</think>\n<answer>\n助手：b<tool_calls>[{CALL}]</tool_calls></answer>"),
    ("xlam", f"[{CALL}, {CALL}]"),
    ("functiongemma", "<start_function_call>call:f{s:<escape>x<escape>,n:[1]}<end_function_call>"),
    ("olmo3", '<function_calls>f(s="x", n=null)\nf()</function_calls>'),
    ("ernie", f"<think>a</think>\n<response>\nb\n</response>\n<tool_call>\n{CALL}\n</tool_call>"),
]
FORMATS = re.findall(r'^    {\.name = "([^"]+)"', (Path(__file__).resolve().parents[2] /
                     "src/chat/reply/formats.c").read_text(), re.M)
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for i, (name, reply) in enumerate(REPLIES):
    text, place = reply.encode(), FORMATS.index(name)
    (folder / f"reply{i:02}").write_bytes(bytes([place, 0]) + text)
    (folder / f"cut{i:02}").write_bytes(bytes([place, 8]) + text[: len(text) * 2 // 3])
