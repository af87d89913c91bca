#!/usr/bin/env python3
"""Write the first seeds of corpus/grammar: make_corpus_grammar.py FOLDER.

The first byte of a file says what it is: a grammar ("0"), a regular expression ("1"), a schema ("2").
"""
import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
GBNF = ['root ::= (expr "=" term "\\n")+\nexpr ::= term ([-+*/] term)*\n'
        'term ::= [a-z] [a-z0-9_]* | [0-9]+ | "(" expr ")"',
        'root ::= "a" root "a" | "b" root | ""', 'root ::= ([^"\\\\\\n]{2,40} | "\\"")* # x\n',
        'root ::= <[3]> (.|"\\u00e9"){0,3}?', 'root ::= x y |\n z\nx::="x"?\ny::=x*\nz::=[\\]-a]+',
        'root ::= root "a"', 'root ::= <[330]> .', 'root ::= "a" <[263]>? "b"', 'root ::= ((((((("a"*)*)+)?){1,3})){2})']
REGEX = [r"(https?://)?[a-z0-9.-]{1,60}(/[^ ?#]*)?", r"^\d{3}-(?:x|y+)\u00e9$", r"(a|b)*abb(ab){3,9}",
         r"[\w\-\]]+@\S{2}\D\W.", r"(?P<x>a{2,}|b?){0,5}c*?", r"a(?=b)", "[^a-f\\x00-\\x1f]|\\u{1f600}"]
SCHEMA = [True, {"type": "object"}, {"type": ["integer", "null"], "minimum": -12, "exclusiveMaximum": 305},
          {"type": "number", "exclusiveMinimum": 0.25, "maximum": 2.75},
          {"properties": {"a": {"enum": ["x", 1, None]}, "ab": {"type": "string", "maxLength": 9}},
           "required": ["ab"], "additionalProperties": {"const": [1, {"k": "\""}]}},
          {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
              "next": {"$ref": "#/$defs/n"}, "v": {"pattern": "^a\\d*\"|b"}}}}},
          {"type": "array", "prefixItems": [{}, {"type": "boolean"}], "items": {"format": "date-time"},
           "minItems": 1, "maxItems": 4},
          {"oneOf": [{"type": "string", "format": "uuid"}, {"type": "array", "items": False}]},
          {"allOf": [{"minimum": 3}, {"type": "integer"}, {"$ref": "#/x"}], "x": {"maximum": 9}},
          {"type": "object", "patternProperties": {"^x": {"type": "null"}}},
          {"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"type": "string"}], "minLength": 2}]
for i, text in enumerate(GBNF):
    (folder / f"gbnf{i}").write_bytes(b"0" + text.encode())
for i, text in enumerate(REGEX):
    (folder / f"regex{i}").write_bytes(b"1" + text.encode())
for i, schema in enumerate(SCHEMA):
    (folder / f"schema{i:02}").write_bytes(b"2" + json.dumps(schema, separators=(",", ":")).encode())
