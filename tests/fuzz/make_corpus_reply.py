#!/usr/bin/env python3
"""Write the first seeds of corpus/reply: make_corpus_reply.py FOLDER.

One reply for each format, in the order of reply_format_list, with two calls where it can.
"""
import sys
from pathlib import Path

CALL = '{"name": "f", "arguments": {"s": "a\\"}", "n": [1, {}]}}'
BARE = '{"name": "f", "parameters": {"s": "x"}}'
DSML = '<｜DSML｜{0}>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="s" string="true">x</｜DSML｜' \
       'parameter>\n</｜DSML｜invoke>\n</｜DSML｜{0}>'
REPLIES = [
    f"<think>a</think>b <tool_call>\n{CALL}\n</tool_call>\n<tool_call>[{CALL}]</tool_call>",
    f"<|python_tag|>{BARE}; {BARE}",
    f'[TOOL_CALLS][{CALL}][TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{{"s": 1}}',
    '<function=f>{"s": 1}</function>',
    'all\nhello>>>f\n{"s": 1}>>>python\nprint(1)',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"s": 1}\n```'
    '<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    DSML.format("function_calls"),
    DSML.format("tool_calls"),
    '<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f '
    '<|constrain|>json<|message|>{"s": 1}<|call|>',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}'
    '<|tool_call_end|><|tool_calls_section_end|>',
    '<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n<parameter=n>\n1\n</parameter>\n'
    '</function>\n</tool_call>',
    '<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n</tool_call>',
    '<minimax:tool_call>\n<invoke name="f">\n<parameter name="n">1</parameter>\n</invoke>\n'
    '</minimax:tool_call>',
    f"<|tool_call|>[{CALL}]",
    f"<|START_ACTION|>[{CALL}]<|END_ACTION|>",
    f"<tool_calls>[{CALL}, {CALL}]</tool_calls>",
    f" functools[{CALL}]",
    f"```json\n{BARE}\n```",
    "<think>\nreasoning\n</think>\n\ncontent",
]
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for i, reply in enumerate(REPLIES):
    text = reply.encode()
    (folder / f"reply{i:02}").write_bytes(bytes([i, 0]) + text)
    (folder / f"cut{i:02}").write_bytes(bytes([i, 8]) + text[: len(text) * 2 // 3])
