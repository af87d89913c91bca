#!/usr/bin/env python3
"""Write what Python's Jinja2 makes of many small templates: make_jinja_cases.py OUT.jsonl

One object a line: template, context, and the text or the error. The environment is the one that
chat templates are written for: the immutable sandbox with trim_blocks, lstrip_blocks, the loop
controls, a tojson that is plain json.dumps, raise_exception and a strftime_now that stands still.
"""
import copy
import datetime
import itertools
import json
import random
import re
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 11, 20, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %}: the body as it is, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


ENV = environment()


def expected(template, context):
    """{"text": ...} or {"error": ...}."""
    try:
        # a copy, because some filters change lists in place
        return {"text": ENV.from_string(template).render(**copy.deepcopy(context))}
    except Exception as e:  # whatever it is, it is an error here too
        return {"error": f"{type(e).__name__}: {e}"[:200]}


CONTEXT = {
    "s": "Hello World", "u": "Grüße, 世界 🌍 ß", "e": "", "sp": "  pad \n", "q": "it's \"q\" \\ \n\t",
    "i": 7, "n": -3, "z": 0, "f": 2.5, "g": 1e16, "h": 0.1, "t": True, "no": False, "none": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "el": [], "m": [[1, 2], [3, 4]],
    "d": {"b": 1, "a": [1, {"x": None}], "items": "shadow", "C": 2.0}, "ed": {},
    "p": [{"n": "x", "v": 2, "k": {"j": 1}}, {"n": "Y", "v": 1, "k": {"j": 2}}, {"n": "x", "v": 3}],
    "html": "<a href='x'>&\"</a>", "lines": "one\ntwo\n\nthree", "num": "12", "flt": "3.7e1",
    "ctl": "\x01\x7f\u200b\ud7ff", "long": "the quick-brown fox--jumps over well-known dogs and a "
    "verylongwordthatdoesnotfitanywhere at all",
}

EXPRESSIONS = """
s u e sp q i n f g h t no none l ls m d ed p nothing
1 -1 +1 1.0 1e3 1e16 1e15 123456789.123 1.5e-7 0.0001 0.00001 1_000 0x1F 0b101 0o17 'a' "b" 'a' 'b'
'\\n\\t\\x41\\u00e9\\101\\q' true false none True None [] () (1,) (1,2) {} {'a':1} [1,'a',None,true,1.0]
1/2 7//2 -7//2 7//-2 7%3 -7%3 7%-3 7.5//2 -7.5%2 5.5%-2 2**10 2**-1 2**0.5 -2**2 1+2*3 (1+2)*3 1-2-3
2**3**2 10/5 1/3 2/3 0.1+0.2 1e300*1e10 -0.0 1.0*3 3*'ab' 'ab'*-1 [1]*3 [1]+[2] (1,)+(2,) 'a'+'b' 1+true
1//0 1%0 1/0 1.0//0 'a'+1 1+'a' [1]+(1,) none+1 nothing+1 'a'~1~none~true~1.5~[1] nothing~'x' s~u
1==1.0 1==true 'a'=='a' [1]==[1] [1]==(1,) {}=={} none==none nothing==nothing nothing==none 1<2 1<2<3 1<3<2
'a'<'b' 'a'<'B' [1,2]<[1,3] (1,)<(1,2) 1<'a' none<1 1!=1 1>=1.0 2>=3 'é'>'z'
1 in l 5 in l 'ell' in s 'x' in d 'b' in d 1 not in l 1 in s none in el nothing in l 1 in nothing 'a' in 'abc' '' in ''
i and f z or s not z not not i e or none no and nothing (t and 'y') or 'n' 'y' if t 'y' if no 'y' if no else 'n'
s[0] s[-1] s[99] s[1:4] s[::-1] s[::2] s[-3:] s[:-3] s[5:2] u[0] u[7:9] u[-1] u[::-1] l[0] l[-1] l[5] l[1:] l[::-1]
l[::2] m[1][0] m[1].0 d['b'] d.b d['zz'] d.zz d.items d['items'] d.a[1].x d.a.1.x d.zz.y none.x none['x'] i.real
i.imag f.is_integer() s.zz l.zz l['0'] d[0] e[0] s[1.0] l[true] 'abc'[1] (1,2)[0] range(5)[2] range(5)[1:3]
range(3) range(1,9,3)|list range(5,0,-2)|list range(0) range(100001) range(1,2,0) dict(a=1,b=2) dict(d) dict([[1,2]])
namespace(a=1).a namespace(a=1) namespace(d).b namespace()|string d|length nothing|length i|length
d.keys()|list d.values()|list d.items()|list d.keys() ed.items() d.get('b') d.get('q') d.get('q',5) d.get()
l.append(1) d.update({}) l.index(2) l.count(1) l.index(9) l.copy() d.copy().b s.__class__ l.__len__() d.__class__
s.upper() s.lower() s.title() s.capitalize() s.swapcase() u.upper() u.lower() u.title() u.casefold() u.capitalize() s.strip('Hd')
sp.strip() sp.lstrip() sp.rstrip() s.startswith('He') s.startswith(('x','H')) s.endswith('ld',2,11) s.endswith('') s.find('o') s.rfind('o')
s.find('o',5) s.find('zz') s.index('zz') s.count('l') s.count('') u.find('世') s.replace('l','L') s.replace('l','L',1) s.replace('','-') s.split()
s.split('o') s.split('o',1) s.rsplit('o',1) s.rsplit(None,1) sp.split() e.split() e.split(',') ' a  b '.split(' ') s.split('') s.splitlines()
lines.splitlines() lines.splitlines(true) s.partition(' ') s.rpartition('o') s.partition('zz') ','.join(ls) ','.join(l) '-'.join('abc') s.center(15,'*') s.center(14)
s.ljust(13)~'|' s.rjust(13) '42'.zfill(5) '-42'.zfill(5) s.isalpha() num.isdigit() s.isspace() s.islower() s.istitle() 'a1'.isalnum() ''.isalpha() '²'.isdigit()
'½'.isnumeric() 'Ab'.swapcase() s.removeprefix('Hello ') s.removesuffix('x') 'a\\tb'.expandtabs(4) s.isidentifier() 'x'.isascii() s.zz() s.encode s.format() '{} {}'.format(1,'a')
'{0}{1}{0}'.format(1,2) '{a}-{b!r}'.format(a=1,b='x') '{:>5}|{:<5}|{:^5}'.format(1,'a','b') '{:05.2f}'.format(3.14159) '{:,}'.format(1234567) '{:x} {:#x} {:b} {:o}'.format(255,255,5,8)
'{:e} {:g} {:%}'.format(1234.5,0.00001,0.25) '{:+d} {: d}'.format(1,2) '{{}}'.format() '{'.format() '{0.x}'.format(1) '{0[b]}'.format(d) '{:*^9}'.format('mid') '{:{}}'.format('a',4) '{}'.format() '{:d}'.format('a')
'%s %d %.2f'%('a',1,2.5) '%5s|%-5s|'%('a','b') '%05d'%42 '%x %X %o'%(255,255,8) '%r'%'a' '%%' '%s'%l '%s'%(l,) '%(a)s'%{'a':1} '%d'%1.9 '%s' '%s'%() '%s %s'%1 '%d'%'a' '%e'%1234.5 '%g'%1e-7 '%c'%65 '%+d'%5 '%i'%3 'a'%1
"""

FILTERED = """
s|upper s|lower s|title s|capitalize u|title 'foo-bar baz(qux'|title s|length u|length l|length s|first s|last l|first l|last el|first el|last
l|sort l|sort(reverse=true) ls|sort ls|sort(case_sensitive=true) p|sort(attribute='v')|map(attribute='v')|list p|sort(attribute='n,v')|map(attribute='v')|list ['a',1]|sort d|dictsort d|dictsort(true) d|dictsort(by='value')
d|dictsort(reverse=true) {'b':2,'a':3}|dictsort(false,'value') l|sum p|sum(attribute='v') ls|sum el|sum l|sum(start=10) l|min l|max ls|min ls|max el|min p|max(attribute='v') l|join l|join(', ') p|join('-',attribute='n') none|join nothing|join
l|reverse|list s|reverse l|list s|list d|list none|list ls|unique|list ls|unique(true)|list [1,1.0,true,2]|unique|list p|unique(attribute='n')|map(attribute='v')|list p|groupby('n')|length p|groupby('n')|map(attribute='grouper')|list p|groupby('n')|map('last')|map('length')|list
p|groupby('n',case_sensitive=true)|map('first')|list p|groupby('k.j',default=0)|map('first')|list l|batch(2)|list l|batch(2,'x')|list l|slice(2)|list l|slice(2,'x')|list range(10)|slice(3)|list d|items|list nothing|items|list l|items|list
l|map('string')|list ls|map('upper')|join p|map(attribute='n')|list p|map(attribute='k.j')|list p|map(attribute='zz',default='D')|list l|map('zz')|list l|map|list l|select|list l|select('odd')|list l|reject('odd')|list l|select('>',1)|list l|select('in',[1,2])|list
p|selectattr('v')|list|length p|selectattr('v','gt',1)|map(attribute='n')|list p|rejectattr('n','equalto','x')|list p|selectattr('k','defined')|list|length p|selectattr('k.j','eq',1)|list|length l|select('zz')|list l|map('add',1)|list none|map('upper')|list [none,1]|select|list
s|replace('o','0') s|replace('o','0',1) 12|replace('1','x') s|trim 'xxhixx'|trim('x') 5|trim lines|indent lines|indent(2,true) lines|indent(2,blank=true) lines|indent('> ') lines|indent(first=true,width=1) ''|indent s|center(20) s|center(3) long|truncate(20) long|truncate(20,true) long|truncate(20,end='!') long|truncate(20,leeway=100) s|truncate(2)
long|wordwrap(20) long|wordwrap(10) long|wordwrap(10,false) long|wordwrap(12,break_on_hyphens=false) lines|wordwrap(3) long|wordwrap(5,wrapstring='|') long|wordcount u|wordcount html|escape html|e html|safe html|forceescape html|striptags html|e|e (html|e)~html (html|safe)+html html|urlencode {'a b':'c&d','e':1}|urlencode u|urlencode 'a/b'|urlencode {'a':1,'b':none,'c':'"'}|xmlattr
num|int flt|int flt|float s|int s|int(5) s|float '0x1f'|int(base=16) ' 12 '|int '1_000'|int none|int none|float 3.99|int -3.99|int true|int nothing|int 'inf'|float 'nan'|float l|int '12abc'|int ''|int '1e5'|int
2.5|round 3.5|round 2.567|round(2) 1234|round(-2) 2.1|round(method='ceil') 2.9|round(0,'floor') 42|round 42.55|round(1) -2.5|round 0.5|round 1.005|round(2) n|abs f|abs s|abs true|abs 1000|filesizeformat 1024|filesizeformat(true) 1|filesizeformat 999|filesizeformat 123456789|filesizeformat
nothing|default('D') none|default('D') none|default('D',true) e|default('D',true) z|d('x') nothing|d nothing.x|default('D') i|string l|string nothing|string d|string 'a'|string|length s|attr('upper') d|attr('b') d|pprint l|pprint s|pprint ls|random|length
d|tojson u|tojson q|tojson ctl|tojson l|tojson el|tojson ed|tojson none|tojson true|tojson 1.0|tojson g|tojson h|tojson d|tojson(indent=2) p|tojson(indent=4) el|tojson(indent=2) d|tojson(sort_keys=true) {'b':1,'a':2}|tojson(sort_keys=true,indent=1) u|tojson(ensure_ascii=true) l|tojson(separators=(',',':')) d|tojson(separators=(',',':'),indent=0) (1,2)|tojson {1:2,none:3,true:4,1.5:5}|tojson html|tojson nothing|tojson range(3)|tojson l|map('string')|tojson namespace(a=1)|tojson '\\u2028'|tojson
s|format '%s-%s'|format(1,2) '%(a)s'|format(a=1) '%s'|format(l) s|zz s|upper|lower|title -1|abs -n|abs (1,2)|join l|first|string s|first|upper (s|list)[0] l|length+1 not e|length
i is odd i is even i is divisibleby 7 i is divisibleby(2) i is defined nothing is defined nothing is undefined none is none i is none t is boolean i is boolean t is true no is false i is integer t is integer f is float i is number t is number s is string l is sequence s is sequence d is sequence d is mapping l is mapping l is iterable i is iterable s is iterable nothing is iterable
s is lower 'abc' is lower 'ABC' is upper '1' is upper i is callable range is callable s.upper is callable i is sameas 7 none is sameas none t is sameas true 1 is sameas true 1 is sameas 1.0 i is eq 7 i is equalto 8 i is ne 7 i is gt 3 i is ge 7 i is lt 3 i is le 7 i is greaterthan 3 i is lessthan 3 1 is in l 's' is in s 'upper' is filter 'zz' is filter 'odd' is test (html|e) is escaped html is escaped i is not odd i is not defined nothing is not none
i is zz i is odd is even i is not not odd s is string and i is odd i is odd or no 'y' if i is odd else 'n' i is == 7
strftime_now('%Y-%m-%d') strftime_now('%d %b %Y, %H:%M:%S %j %A %%') raise_exception('no') cycler(1,2).next() cycler() joiner('-')() lipsum is defined range is defined namespace is defined dict is mapping
"""

TEMPLATES = [
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}|{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x % 2) }}{% endfor %}",
    "{% for x in el %}{{ x }}{% else %}empty{% endfor %}",
    "{% for x in l %}{% break %}{% else %}else{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}else{% endfor %}",
    "{% for x in l %}{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in u %}{{ c }}.{% endfor %}",
    "{% for a, b in m %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in l %}{{ a }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in nothing %}{{ x }}{% else %}u{% endfor %}", "{% for x in i %}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }})"
    "{% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in l %}{% set y = x %}{% endfor %}{{ y }}|{{ x }}",
    "{% set y = 0 %}{% for x in l %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}",
    "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace() %}{{ ns.x }}{% set ns.x = [1] %}{{ ns.x }}{{ ns['x'] }}{{ ns }}",
    "{% set d.x = 1 %}{{ d }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, %}{{ a }}",
    "{% set a = [1, 2] %}{% set b, c = a %}{{ b + c }}", "{% set (a, b) = 'xy' %}{{ b }}{{ a }}",
    "{% set x %}in {{ i }}{% endset %}[{{ x }}]", "{% set x | upper | trim %} in {{ i }} {% endset %}[{{ x }}]",
    "{% if no %}a{% elif z %}b{% elif i %}c{% else %}d{% endif %}", "{% if nothing %}a{% else %}b{% endif %}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}", "{% if i is odd and f > 2 %}yes{% endif %}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=1, a=0) }}",
    "{% macro f(a) %}{{ a }}{{ a is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}x{% endmacro %}{{ f(1) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}",
    "{% macro f() %}x{% endmacro %}{{ f(a=1) }}", "{% macro f(a) %}{{ caller(a) }}{% endmacro %}"
    "{% call(x) f(5) %}<{{ x }}{{ s }}>{% endcall %}",
    "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}body{% endcall %}{{ f.name }}{{ f.arguments }}",
    "{% macro f() %}x{% endmacro %}{% call f() %}body{% endcall %}",
    "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}",
    "{% macro fac(n) %}{% if n < 2 %}1{% else %}{{ n * (fac(n - 1) | int) }}{% endif %}{% endmacro %}{{ fac(6) }}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'x': 2}) }}{{ f('a') ~ f('b') | upper }}",
    "{% for x in l %}{% macro g() %}{{ x }}{% endmacro %}{{ g() }}{% endfor %}",
    "{% with a = 1, b = i %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}",
    "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}", "{% with a=1, b=a %}{{ b }}{% endwith %}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | title %}aa{% endfilter %}",
    "{% raw %}{{ x }}{% for %}{% endraw %}|", "a {%- raw -%} {{ }} {%- endraw -%} b", "{% raw %}\n x\n{% endraw %}\ny",
    "a {# c #} b {#- c -#} c", "{# a\n #}\nx\n  {# b #}\ny", "  {% if t %}\n  x\n  {% endif %}\n  y\n",
    "a\n  {%- if t -%}  \n x \n{%- endif %}\n z", "  {%+ if t %}x{% endif +%}\n y", "{{ 1 }}\n{{ 2 -}}\n 3 {{- 4 }}",
    "{{- 1 -}}", "x\n\n", "x\r\ny\r\n", "{{ 'a\r\nb' }}", "{%if t%}a{%endif%}", "{% if t %}a{% endif %}\n\nb",
    "\n  {% set x = 1 %}\n\n{{ x }}", " {{ 1 }} {% if t %} a {% endif %} ", "{% generation %} a {{ s }}{% endgeneration %}b",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% block a %}A{{ i }}{% endblock %}{{ self.a() }}", "{% block a %}x{% endblock a %}",
    "{% print 1, 'a' %}", "{% autoescape true %}{{ html }}{{ html | safe }}{% endautoescape %}{{ html }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }}",
    "{% set j = joiner() %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{{ x", "{% if %}", "{% endif %}", "{% for x in l %}",
    "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1) }}", "{% set 1 = 2 %}", "{% set x %}", "{% zz %}", "{{ 'a }}", "{# x", "{% raw %}x",
    "{{ s | zz }}", "{% if no %}{{ s | zz }}{% endif %}ok", "{{ (s | zz) if no else 'ok' }}", "{% if no %}{{ s is zz }}{% endif %}ok",
    "{% break %}", "{% for x in l %}{% endfor %}{% continue %}", "{% include 'a' %}", "{% import 'a' as b %}", "{% extends 'a' %}",
    "{% from 'a' import b %}", "{{ loop }}", "{{ caller }}", "{{ varargs }}", "{{ nothing.x }}", "{{ nothing() }}", "{{ s() }}",
    "{% macro f(a, a) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{% for x in l %}{{ loop() }}{% endfor %}",
    "{% set x = l | map('upper') %}ok", "{% set g = ls | map('upper') %}{{ g | join }}{{ g | join }}", "{{ p | map(attribute='n') | map('upper') | join(',') }}",
    "{% if ls | map('upper') %}y{% endif %}", "{% for x in ls | map('upper') %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for g in p | groupby('n') %}{{ g.grouper }}:{{ g.list | length }}{% for k, v in [g] %}{{ k }}{% endfor %};{% endfor %}",
    "{% set content = s %}{% for x in l %}{% if loop.first %}{% set content = 'c' %}{% endif %}{{ content }}{% endfor %}",
    "{{ {'a': {'b': [1, 2]}}.a.b[1] }}", "{{ {'a': 1,} }}{{ [1, 2,] }}{{ (1, 2,) }}", "{{ {1: 'a', 'x': 2}[1] }}", "{{ 1 if t else 2 if no else 3 }}",
    "{{ s.split(' ')[-1].upper()[:2] }}", "{{ 'a' 'b' ~ 'c' }}", "{{ not t or t }}", "{{ 1 < 2 and 2 < 3 }}", "{{ -1 ** 2 }}{{ 2 * -1 }}", "{{ 'x' * 3 + 'y' }}",
    "{{ 5 | string + 'a' }}", "{{ 1.5 | int + 1 }}", "{{ l[0:2][1] }}", "{{ s[l[1]] }}", "{{ [1, 2][::-1] }}{{ (1, 2, 3)[1:] }}", "{{ l[:none] }}", "{{ l[::0] }}", "{{ d[1:] }}",
    "{{ none[1:] }}", "{{ 'abc'.x.y }}", "{{ s is string is true }}", "{{ ~ }}", "{{ 9223372036854775807 }}", "{{ 1 ; 2 }}",
    "{% set messages = [{'role': 'user', 'content': 'hi'}] %}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}",
]


# What a chat gives its template.
CONTEXT.update(
    messages=[{"role":"system","content":"Be nice."},{"role":"user","content":"Hi\nthere"},{"role":"assistant","content":None,"tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":{"city":"Köln","n":1.0,"deep":{"a":[1,2,{"b":None}]}}}}]},{"role":"tool","tool_call_id":"c1","content":"{\"t\": 21}"}],
    tools=[{"type":"function","function":{"name":"get","description":"Gets","parameters":{"type":"object","properties":{"city":{"type":"string","description":"A city","enum":["a","b"]},"n":{"type":["number","null"],"default":1}},"required":["city"]}}}],
    bos_token="<s>",eos_token="</s>",add_generation_prompt=True,enable_thinking=False)

# As in released templates.
CHATS = [
"""{%- macro render_type(p) -%}
{%- if p.type is string -%}{{ p.type }}{%- elif p.type is iterable -%}{{ p.type | join(' | ') }}{%- endif -%}
{%- endmacro -%}
{%- for t in tools %}
// {{ t.function.description }}
type {{ t.function.name }} = (_: {
{%- for name, p in t.function.parameters.properties.items() %}
  {{ name }}{{ '' if name in t.function.parameters.required else '?' }}: {{ render_type(p) }}{% if p.default is defined %} = {{ p.default | tojson }}{% endif %},
{%- if p.enum %} // {{ p.enum | map('tojson') | join('|') }}{% endif %}
{%- endfor %}
}) => any;
{% endfor %}""",
"""{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] | trim + '\\n\\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set system_message = '' %}{% set loop_messages = messages %}{% endif %}{{ bos_token }}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ 'X' }}{% endif %}{% if loop.index0 == 0 %}{% set content = system_message + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{{ '[INST] ' ~ content ~ ' [/INST]' }}{% endfor %}""",
"""{%- set ns = namespace(last_user=-1, multi=true) %}
{%- for m in messages[::-1] %}
  {%- set index = (messages|length - 1) - loop.index0 %}
  {%- if ns.multi and m.role == "user" and m.content is string and not (m.content.startswith('<t>') and m.content.endswith('</t>')) %}
    {%- set ns.multi = false %}
    {%- set ns.last_user = index %}
  {%- endif %}
{%- endfor %}
{{ ns.last_user }}""",
"""{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{% set c = c.function %}<call>{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}</call>{% for k, v in c.arguments.items() %}{{ k }}={{ v if v is string else v | tojson }};{% endfor %}{{ c.arguments }}{% endfor %}{% endif %}{% endfor %}""",
"""{%- for message in messages %}
    {%- if message.role == "user" %}
        {{- "<u>" + message.content + "</u>" }}
    {%- elif message.role == "assistant" and message.content is not none %}
        {{- message.content }}
    {%- elif message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
        {{- "T" }}
        {%- generation %}{{ message.tool_calls[0].id }}{% endgeneration %}
    {%- else %}
        {{- message | tojson(indent=2) | indent(4) }}
    {%- endif %}
{%- endfor %}""",
"""{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | last }}{{ (messages | rejectattr('role', 'in', ['system', 'tool']) | list)[-1].role }}{{ messages | map(attribute='role') | unique | join(',') }}""",
"""{{ messages[2].content }}{{ messages[2]['content'] is none }}{{ messages[2].get('reasoning', '-') }}{{ messages[9] is defined }}{{ (messages[9] or {}).x }}{{ messages[0].zz | default('d') }}""",
"""{% set d = dict(messages[0], extra=1) %}{{ d }}{% set l = messages + [d] %}{{ l|length }}{% for m in l %}{{ loop.index }}{{ ',' if not loop.last }}{% endfor %}""",
"""{%- set parts = messages[1].content.split('\\n') -%}{%- for p in parts -%}{{ p | capitalize }}{{ '\\n' if not loop.last else '' }}{%- endfor -%}""",
"""{{ '<|start|>' ~ {'a': tools} | tojson ~ '<|end|>' }}{{ tools | tojson(indent=4, sort_keys=true) }}{{ tools|string|length }}{{ tools[0]|items|list|length }}""",
"""{% macro f(v, depth=0) %}{% if v is mapping %}{% for k, x in v|dictsort %}{{ '  ' * depth }}{{ k }}:
{{ f(x, depth + 1) }}{% endfor %}{% elif v is iterable and v is not string %}{% for x in v %}{{ f(x, depth) }}{% endfor %}{% else %}{{ '  ' * depth ~ v }}
{% endif %}{% endmacro %}{{ f(tools) }}""",
"""{% set x = [] %}{% set x = x + [1] %}{% set _ = x.append(2) %}{{ x }}""",
"""{%- set thinking = enable_thinking if enable_thinking is defined else true -%}{{ thinking }}{% if not (thinking is defined and thinking is false) %}T{% else %}F{% endif %}""",
"""{% for m in messages if m.role in ('user', 'tool') %}{{ loop.index }}{{ m.role }}{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem.role if not loop.last }}|{% endfor %}""",
"""{{ "%s has %d items and %.1f%% (%5s)" | format("a", 3, 99.5, 'x') }}{{ '{name}: {val:>4}'.format(name='n', val=5) }}{{ "{:.1f}".format(2.25) }}{{ "%.0f" % 0.5 }}{{ "%.2f" | format(1.005) }}""",
"""{%- with messages = messages[:1] -%}{{ messages|length }}{%- endwith -%}{{ messages|length }}{% block b %}{{ messages|length }}{% endblock %}""",
"""  {%- if true %}

   a  

  {%- endif %}

  {% if true -%}

   b
  {%- else -%} c {%- endif +%}
  
x""",
"{{ '\n' }}a\n\n{{- '\n\n' -}}\n\nb\n\n\n",
"a{% if true %}\nb\n{% endif %}\nc {% if true %} d {% endif %}\n  {# c #}\n e\n  {{ 1 }}\n  {%- set x = 1 %}\n\n f",
"\t{% if true +%}\n x\n\t{%+ endif %}\ny{% raw -%}\n\n {{ raw }} {%- endraw %}\n z",
"{% set content %}\n  a\n  {% for i in [1,2] %}\n  {{ i }}\n  {% endfor %}\n{% endset %}{{ content | tojson }}",
"{%- call(x) outer() -%}{%- endcall -%}",
"{% macro outer() %}{{ caller('a', 'b') }}{% endmacro %}{% call(x, y='d') outer() %}{{ x }}{{ y }}{% for i in [1] %}{{ x }}{% endfor %}{% endcall %}",
"{% for i in range(2) %}{% macro m() %}{{ i }}{% endmacro %}{% for j in range(2) %}{{ m() }}{{ loop.index }}{% endfor %}{% endfor %}",
"{% set ns = namespace(a=0) %}{% macro inc() %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{% endmacro %}{{ inc() }}{{ inc() }}{{ ns.a }}",
"{% for a, b in d.items() %}{{ loop.first }}{{ a }}{% endfor %}{% for k in d.keys() | sort %}{{ k }}{% endfor %}",
"{% if messages is defined and messages|length > 2 and messages[0].role == 'system' and not tools is none %}y{% endif %}{{ 'a' if messages[0].content is string and 'nice' in messages[0].content else 'b' }}",
"{{ messages[1]['content'][:2] + '..' }}{{ messages[1].content | replace('\\n', ' ') | title }}{{ messages[1].content.splitlines() | join('|') }}{{ messages[1].content | wordcount }}",
"{{ 1 if x is defined else 2 }}{{ x.y if x is defined else 'n' }}{{ x | default(messages[0].role) }}{{ (x is not defined) | string | lower }}",
"{% set a, b = messages[0].role, 2 %}{{ a ~ b }}{% set (c, d2), e2 = (1, 2), 3 %}{{ c + d2 + e2 }}",
"{% for x in 'abc' %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.depth0 }}{% endfor %}{% endfor %}",
"{{ range(10)[2:8:3] | list }}{{ range(3) | reverse | list }}{{ range(5) | sum }}{{ 3 in range(5) }}{{ range(2) | string }}{{ range(5)|length }}{{ (range(3)|list)[-1] }}",
"{{ strftime_now('%d %b %Y') if strftime_now is defined else 'x' }}{{ namespace is callable }}{{ raise_exception is defined }}",
"{% set m = {'role': 'user'} %}{% if 'content' not in m %}{{ m.role }}{{ m.content is defined }}{{ m.content }}{% endif %}{{ m.update is defined }}{{ m['x'] | default('q') }}",
"{{ loop.index }}", "{% for x in l %}{{ loop.foo }}{% endfor %}", "{{ ns.x }}", "{% set ns.x = 1 %}", "{{ cycler('a').foo }}", "{{ messages.role }}", "{{ messages.0.role }}{{ messages['0'] }}",
"{{ none == none }}{{ none in [none] }}{{ none ~ '' }}{{ [none]|join }}{{ none or 'x' }}{{ none is defined }}{{ none|string|length }}",
"{{ 'a' * 2.0 }}", "{{ [1] + (1,) }}", "{{ {} + {} }}", "{{ 'a' - 'b' }}", "{{ d | join(',') }}{{ d | list | sort(case_sensitive=true) }}", "{{ d < d }}", "{{ l | sort(attribute='x') }}",
"{{ u | wordwrap(5) }}|{{ 'a-b-c d--e f' | wordwrap(3) }}|{{ ' lead and  double ' | wordwrap(6) }}", "{{ html|striptags }}{{ '<!-- a --><b>x &amp; y</b>  z'|striptags }}",
]

# One template a line; NL is the end of a line.
MORE = r"""
{% set x = 5 %}{% macro f() %}{{ x }}{{ y }}{% endmacro %}{% for y in [1,2] %}{{ f() }}{% endfor %}
{% macro f(x=l) %}{{ x|join }}{% endmacro %}{{ f() }}{{ f(none) }}
{% for x in l %}{% set l = [9] %}{{ l }}{% endfor %}{{ l }}
{% for i in range(3) %}{{ i }}{% endfor %}{{ i }}
{{ s if }}
{% if s %}{% for x in l %}{% if loop.first %}F{% elif loop.last %}L{% else %}M{% endif %}{% endfor %}{% endif %}
{{ ' a  b c '.split(none, 1) }}{{ ' a  b c '.rsplit(none, 1) }}{{ ' a  b c '.rsplit(none, 9) }}
{{ '%.3d|%6.3d|%#.4x|%.0d' % (5, -5, 255, 7) }}
{{ '{:.3d}'.format(3) }}
{{ '{:.500f}'.format(0.1) }}{{ '%.450f' % 1e300 }}
{{ '{:<06}|{:x<06}|{:^06}|{:06}'.format(7, 7, 7, -7) }}
{{ 'a,b;c'.replace(',', ';').split(';') }}
{{ "%s" % none }}{{ "%s" % true }}{{ "%5.1f|%-8s|%+.2e" % (3.14159, 'ab', 12345.678) }}
{{ '{:,.2f}'.format(1234567.891) }}{{ '{:_}'.format(1234567) }}{{ '{:>+8.3f}'.format(2.5) }}{{ '{!r:>6}'.format('a') }}
{{ '{:g}'.format(1e10) }} {{ '{:g}'.format(123456789) }} {{ '{:.3g}'.format(0.00012345) }} {{ '{:n}'.format(5) }} {{ '{:.3}'.format(2.0) }} {{ '{:.2}'.format('abc') }} {{ '{:s}'.format('a') }} {{ '{:c}'.format(65) }} {{ '{}'.format(none) }} {{ '{:5}'.format(true) }} {{ '{:010.3f}'.format(-3.14159) }} {{ '{:#o}'.format(8) }}{{ '{:08b}'.format(37) }}
{{ 1e22 }} {{ 1e21 }} {{ 123456789012345680.0 }} {{ 1.0e-5 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 0.1+0.7 }} {{ 100.0 }} {{ 1e2 }}
{{ [1.0, 2.50, 1e100, -0.0] }} {{ {'a': 1.0} | tojson }}
{{ 7 // 2.0 }} {{ -7 // 2.0 }} {{ 7 % -2.5 }} {{ -7 % 2.5 }} {{ 0.3 % 0.1 }} {{ 1e20 // 3 }}
{{ "abc" < "abd" }} {{ "Z" < "a" }} {{ [1,[2]] < [1,[3]] }} {{ (1,2) == (1,2) }} {{ {'a':1} == {'a':1.0} }}
{{ l is sequence }} {{ d.keys() is sequence }} {{ d.items() is iterable }} {{ (l|map('string')) is sequence }} {{ range(3) is sequence }}
{{ d.items()|list }}{{ d|list }}{{ d|length }}{{ d|first }}{{ d|last }}
{{ d.values()|map('string')|list }}{{ d.keys()|join(',') }}{{ d.keys()|sort }}
{{ ls|sort|reverse|list }}{{ ls|sort(reverse=True)|first }}{{ ls|map('lower')|unique|sort|join }}
{{ p|selectattr('n','in',['x'])|list|length }}{{ p|selectattr('k.j','defined')|map(attribute='k.j')|sum }}
{{ p|map(attribute='k')|select('defined')|list }}{{ p|map(attribute='k.j', default='-')|join(',') }}
{{ p|groupby('n')|map('first')|join(',') }}{% for k, g in p|groupby('v') %}{{k}}{{g|length}}{% endfor %}
{{ s|list|batch(4)|map('join')|list }}
{{ 'a b'|urlencode }}{{ {'a':'1 2','b':'x&y'}|urlencode }}{{ [('a',1)]|urlencode }}
{{ 'see http://example.com, (https://www.example.org/a_(b)) and www.x.de.'|urlize }}
{{ 'a.com b.xyz aa.co.net:80/x?y#z http://localhost http://a http://1.2.3.4:99999/ http://1.2.3'|urlize }}
{{ 'http://[::1]:80/ http://[1:2:3:4:5:6:7:8] http://[12345:1:2] http://[a::b HTTP://EXAMPLE.COM/ \u017fee.com'|urlize }}
{{ 'me@example.com mailto:me@example.com mailto:x @a@b.de a@b a@b.c-d a@.de x:y@z.de a@b.c.d, <a@b.de>'|urlize }}
{{ 'http://xn--abc.xn--p1ai/ http://a-b.c%d.info www.a..com http://a.b:x http://ü.de/ü ü.com www.com'|urlize }}
{{ '(((http://a.de))). <http://a.de> &lt;http://a.de&gt; http://a.de/(x http://a.de/(x)) ((a.com)'|urlize }}
{{ ('<b>http://a.de</b> "www.a.de"'|safe)|urlize }}|{{ 'http://a.de/?a=1&b="2"'|urlize }}
{{ 'http://example.com/a/long/path me@example.com'|urlize(12) }}{{ 'www.äöü.de'|urlize(5) }}{{ 'http://a.de'|urlize(-3) }}
{{ 'http://a.de x@y.de'|urlize(nofollow=true, target='_blank"', rel='b a b <c>') }}
{{ 'tel:1234 ftp://a.de/ tel: http://b.de xtel:12'|urlize(40, extra_schemes=['tel:', 'ftp://']) }}
{{ 'tel:12345'|urlize(4, extra_schemes=('tel:',)) }}{{ 1|urlize }}{{ none|urlize }}{{ nothing_here|urlize }}
{{ 'a'|urlize(extra_schemes=['t:']) }}
{{ 'a'|urlize(extra_schemes=['tel:///']) }}
{{ 'http://a.de'|urlize('x') }}
{% autoescape true %}{{ 'http://a.de <x>'|urlize }}{{ '<x>' }}{% endautoescape %}{{ '\t http://a.de\n\n  b.org\u2003c.org ' | urlize }}
{{ 'x'|indent(4, true) }}{{ 'a\nb'|indent(width='--') }}{{ "a\n\n  b\n"|indent }}
{{ 'hello world foo'|truncate(11) }}{{ 'hello world foo'|truncate(5, true, '') }}
{{ none|default('x', boolean=true) }}{{ ''|default('x') }}{{ 0|default(1, true) }}{{ undefined_thing|default }}
{{ [1,2,3]|sum }}{{ [[1],[2]]|sum(start=[]) }}{{ ['a','b']|sum }}
{{ 3.7|int }}{{ '3.7'|int }}{{ 'abc'|int(-1) }}{{ '0b11'|int(0, 2) }}{{ '0o17'|int(0,8) }}{{ 'ff'|int(base=16) }}
{{ 3|float }}{{ '1e3'|float }}{{ ' 4.5 '|float }}{{ 'nan'|float }}{{ '-inf'|float }}
{{ 2.675|round(2) }}{{ 1e20|round }}{{ 15|round(-1) }}{{ 25|round(-1) }}{{ -15|round(-1) }}{{ 1.25|round(1) }}{{ 5.5|round|int }}
{{ "a" "b" }}{{ 'a' ~ 1 + 2 }}
{{ 1 + 2 ~ 'a' }}{{ 2 * 3 ~ 4 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}{{ not 1 == 2 }}{{ 1 if 0 else 2 if 0 else 3 }}
{{ l | map('multiply') | list }}
{{ "{0[0]}{1.real}".format([1], 5) }}{{ "{a[b]}".format(a={'b': 2}) }}{{ '{0.__class__}'.format(1) }}
{{ dict(a=1, **{'b': 2}) }}{{ dict([('x', 1)], y=2) }}{{ dict(l) }}
{% set ns = namespace(d, z=1) %}{{ ns.b }}{{ ns.z }}{% set ns.b = 9 %}{{ ns.b }}{{ d.b }}
{% set ns = namespace(found=false) %}{% for x in l %}{% if x == 1 %}{% set ns.found = true %}{% break %}{% endif %}{% endfor %}{{ ns.found }}
{% set x = namespace(y=namespace(z=1)) %}{{ x.y.z }}
{% for x in l recursive %}{{ x }}{% if loop.depth < 3 and loop.first %}[{{ loop(l) }}]{% endif %}{% endfor %}
{% for x in [1,2,3,4,5] %}{% if loop.index is divisibleby 2 %}{% continue %}{% endif %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}
{% for x in l %}{{ loop.index ~ '/' ~ loop.length }}{% endfor %}{% for c in 'añ' %}{{ c|upper }}{% endfor %}
{%- for x in l -%} {{ x }} {%- endfor -%}
{% for x in l %}
  {{ x }}
{% endfor %}
end
{% if t %}
    indented
{% endif %}
  {{ s }}  
{%- if t %}  a  {%- endif %}
{# comment #}  text {#- trim -#}  more
	{% if t %}tab{% endif %}
{% set a %}x{% endset %}{{ a is string }}{{ a|length }}
{% set a = 'x' if no %}[{{ a }}]{{ a is defined }}
{% call(a, b=2) undefined_macro() %}{% endcall %}
{% macro m(a, b) %}{{ a }}-{{ b }}|{{ varargs|length }}|{{ kwargs|dictsort }}{% endmacro %}{{ m(1, 2, 3, c=4) }}{{ m(*[1,2], **{'z': 1}) }}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(1) }}
{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}
{% filter indent(2) %}a
b{% endfilter %}
{{ [1,2,3][1:]|first }}{{ 'abc'[::2] }}{{ 'abcdef'[-4:-1] }}{{ l[-2:] }}{{ (1,2,3)[::-1] }}
{{ d['a'][1]['x'] }}{{ d.a[1].x is none }}{{ d.get('zz', {}).get('q', 'dflt') }}
{{ m|map('first')|list }}{{ m|map('last')|sum }}{{ m|map('sum')|list }}{{ m|sum(start=[]) }}
{{ [l, ls]|map('length')|list }}{{ ['a','b']|map('replace','a','z')|list }}{{ [1,2]|map('string')|join('+') }}
{{ [none, 1, '', 'a', [], [0]]|select|list }}{{ [none, 1]|reject('none')|list }}{{ [1,2,3]|select('divisibleby', 2)|list }}
{{ raise_exception() }}
{{ loop is defined }}{{ self is defined }}{{ range is defined }}
{{ messages }}{{ messages is defined }}{{ not messages }}{% for m in messages %}{% endfor %}
{{ "\u00e9" == "é" }}{{ "é"|length }}{{ "\x41" }}{{ '\'' }}{{ "\"" }}{{ '\\n' }}{{ '\z' }}
{{ 'ß'.upper() }}{{ 'ŒUVRE'.lower() }}{{ 'ΑΣ'.lower() }}{{ 'ﬁ'.upper() }}{{ 'İ'.lower()|length }}{{ 'ǆ'.title() }}
{% for c in 'ὐᾀᾈᾲᾳᾷŉﬃǅꭰᎠſ' %}{{ c|upper }} {{ c.lower() }} {{ c.title() }} {{ c.swapcase() }} {{ c.casefold() }}|{% endfor %}
{% filter length %}abc{% endfilter %}
{{ ["a'b", 'a"b', 'a\'"b', 'é', '\t', '\x00', '\u200b'] }}
{{ {'a': ["x'y"]} }}{{ ('a',) }}{{ {1: 2, 1.5: 3, none: 4, true: 5, (1,2): 6} }}
{{ {'a': 1}.items() }}{{ {'a': 1}.keys() }}{{ {}.values() }}{{ {'b': 1, 'a': 2}|tojson(sort_keys=True) }}
{{ [[], {}, [[]], [{}]]|tojson(indent=2) }}{{ {'k': [1, {'z': none}]}|tojson(indent='\t') }}{{ '</script>&\''|tojson }}
{{ "é\u2028\x7f\x1f"|tojson }}{{ "é🌍"|tojson(ensure_ascii=True) }}{{ [1,2]|tojson(separators=(',', ': '), indent=1) }}
{% for k, v in {'a': 1, 'b': 2}.items() if v > 1 %}{{ k }}{% endfor %}{% for k, v in d|items %}{{ k }}{% endfor %}
{% for a in l for b in l %}{% endfor %}
{{ l.0 }}{{ l.0.real }}{{ m.1.0 }}{{ 'abc'.0 }}
{{ l|attr('count') is callable }}{{ d|attr('zz') is defined }}{{ d.pop is defined }}{{ d.pop('b') }}
{% set x = s|items %}{{ 'y' if none|items }}{{ 5|items is iterable }}{% if no %}{{ x|list }}{% endif %}
{% for k, v in s|items %}{% endfor %}
{{ (5|items)|list }}
{{ none|items|length }}
{{ '%s %(b)s' % d }}{{ '%(b)s %(C).1f' % d }}
{{ '%(b)s %s' % d }}
{{ '%(b)*d' % d }}
{{ l.sort() }}
{{ s.__class__.__mro__ }}
{{ ''.join(['a', 'b'])|upper ~ 'c' }}{{ '-'.join(l|map('string')) }}{{ '-'.join([1]) }}
{{ (s|length > 3) and (s[0] == 'H') }}{{ 'H' in s and 'z' not in s }}{{ s in ['Hello World'] }}{{ not 'a' in ls }}
{{ 1 is number and true is number and 'a' is not number }}{{ 1.0 is integer }}{{ true is integer }}
{{ 'a' is in 'abc' }}{{ 1 is in [1] }}{{ 'a' is eq 'a' }}{{ 3 is ge 2 }}{{ l is sameas l }}
{{ strftime_now('%B %-d, %Y') }}{{ strftime_now('') }}{{ strftime_now('%f') }}
{% autoescape true %}{{ '<' ~ '>' }}{{ '<' }}{% endautoescape %}
{{ ('<b>'|safe) + '<i>' }}{{ ('<b>'|e) ~ '<i>' }}{{ '<%s>'|safe|format('<') }}{{ ('a'|safe).join(['<']) }}{{ 'a<b'|e|upper }}{{ ['<', '<'|safe]|join('&') }}
{{ '%s'|safe % '<' }}{{ ('<'|safe) * 2 }}{{ ('<a>'|safe)[0] + '<' }}
{{ x.y.z }}
{{ x['y'] }}
{{ x() }}
{{ x + 1 }}
{{ x ~ 1 }}{{ x|string }}{{ x|list }}{{ x|length }}{{ x|upper }}{{ x == y }}{{ x is none }}{{ [x] }}{{ x|tojson }}
{{ x < 1 }}
{{ -x }}
{{ x|int }}
{{ x|float }}
{{ x|abs }}
{{ x|round }}
{{ x.items() }}
{% for k, v in x.items() %}{% endfor %}
{{ none + 'a' }}
{{ none|length }}
{{ 5|length }}
{{ none|join }}
{{ 5|list }}
{{ none.x }}{{ none.x is defined }}{{ none['x'] }}{{ 5 .x }}
{{ none|upper }}{{ 5|upper }}{{ true|lower }}{{ none|trim }}{{ l|trim }}{{ l|replace('1','x') }}
{{ 'a'|join('b') }}{{ {'a':1}|join }}{{ 'abc'|join(',') }}{{ [1,[2]]|join }}
{% for x in l %}{% with r = x %}{% if r == 1 %}{% continue %}{% endif %}{% endwith %}{{ x }},{% endfor %}
{% for x in l %}{% with %}{% break %}{% endwith %}a{% endfor %}b
{% for x in l %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% else %}c{% endfor %}
{% for x in l %}{% for y in [] %}{% else %}{% continue %}{% endfor %}{{ x }}{% else %}c{% endfor %}
{% for x in l %}{% autoescape true %}{{ '<' }}{% break %}{% endautoescape %}a{% endfor %}{{ '<' ~ x }}
{% for x in l %}{% filter upper %}b{% if x == 1 %}{% continue %}{% endif %}{% endfilter %}a{% endfor %}
{% set q = 1 %}{% for x in l %}{% set q %}a{% if x == 1 %}{% break %}{% endif %}{% endset %}{{ q }}{% endfor %}{{ q }}
{{ range(6000)|unique|list|length }}
{{ '\x7f\x80'|tojson(ensure_ascii=true) }}{{ '\x7f'|tojson }}
{% macro f() %}{{ tools }}{% endmacro %}{{ f() }}{% set tools = 'T' %}{{ f() }}
{% macro f() %}{{ tools }}{% endmacro %}{{ f() }}{% if t %}{% set tools = 'T' %}{% endif %}{{ f() }}
{{ s }}{% macro f() %}{{ s }}{% endmacro %}{{ f() }}{% set s = 'T' %}{{ f() }}
{% for x in l %}{% set s %}{{ s }}x{% endset %}{{ s }}{% endfor %}{{ s }}
{% for x in l %}{{ s }}{% endfor %}{% set s = 1 %}{% for x in l %}{{ s }}{% endfor %}
{% for x in l if s %}{{ x }}{% endfor %}{% for x in el %}{% else %}{{ s }}{% endfor %}{% set s, i = 1, 2 %}
{% with x = s %}{{ x }}{{ i }}{% endwith %}{% filter upper %}{{ i }}{% endfilter %}{% set i = 1 %}
{% generation %}{{ s }}{% endgeneration %}{% set x | replace('a', 'b') %}a{{ s }}{% endset %}{{ x }}{% set s = 1 %}
{% block a %}{{ s }}{% endblock %}{% block b scoped %}{{ s }}{% for x in l %}{{ i }}{% endfor %}{% set i = 1 %}{% endblock %}{% set s = 1 %}{{ self.a() }}
{% for x in el %}{% else %}{% for y in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}{% endfor %}{{ s }}
{% macro f(s=i, i=s) %}{{ s }},{{ i }};{% endmacro %}{{ f() }}{{ f(1) }}{{ f(i=1) }}
{% macro f() %}{% for x in l %}{{ s }}{{ caller() }}{% endfor %}{% set s = 1 %}{% endmacro %}{% call f() %}{% with %}{{ q }}{% endwith %}{% set q = 1 %}{% endcall %}
{% for x in l %}{% macro f() %}{{ s }}{% endmacro %}{{ f() }}{% set s = x %}{{ f() }}{% endfor %}
{% if no %}{% set s = 1 %}{% else %}{% for x in l %}{{ s }}{% endfor %}{% endif %}{% set s = 2 %}{{ s }}
{% for x in [1] %}{% macro i() %}{% endmacro %}{% endfor %}{% with %}{{ s is defined }}{% endwith %}{% macro s() %}S{% endmacro %}{{ s() }}
{% for x in l %}{% set ns.z = 1 %}{% endfor %}{% set ns = namespace() %}
{{ dict(nothing) }}
{{ namespace(nothing) }}
{{ dict(nothing, a=1) }}
{{ '{:020,}|{:012,.2f}|{:010_x}|{:+010,}|{:0=9,}|{:*=12,}|{:<012,}'.format(1234567, 1234.5, 255, -12, 1234, 1234, 1234) }}
{{ '{:010}|{:^010}|{:>08}|{:x>08}'.format('abc', 'abc', 'abc', 'abc') }}{{ '{:06}|{:06}|{:<06}'.format(-1, 1.5, true) }}
{{ '{:,}'.format('abc') }}
{{ '{:_}'.format('abc') }}
{{ '{:#}'.format('abc') }}
{{ '{:=5}'.format('abc') }}
{{ '{:,x}'.format(5) }}
{{ '{:,n}'.format(5) }}
{{ '{:.1c}'.format(65) }}
{{ '{:+c}'.format(65) }}
{{ '%#.0f|%#.0e|%#.3g|%#5.0f|%#x' % (1, 1, 1, 2.5, 255) }}{{ '{:#.0f}|{:#.0e}|{:#}|{:#.0%}|{:#g}'.format(1, 1, 1e20, 0.5, 2) }}
{{ '{:.3}|{:.3}|{:.1}|{:.2}|{:#.3}|{:.0}'.format(123.0, 1234.0, 0.0, 9.99, 2.0, 2.0) }}
{{ '{!a}|{!a:>12}|{!r}'.format(u, 'é', 'é') }}{{ '%a|%.3a|%r' % ('ß🌍', 'é', 'é') }}
{{ '%d' % ('1e999'|float) }}
{{ '%d|%i|%u' % (1e18, -1e18, 9e17) }}
{{ '１２'|int }}{{ '١٢'|int }}{{ '１.５'|float }}{{ '-𝟗𝟎'|int }}{{ '²'|int(9) }}{{ '１e２'|float }}{{ 'f１'|int(base=16) }}{{ '一'|int(9) }}
{{ 'ΑΣ'|title }}{{ 'ΑΑΣ ΣΑΣ-ΣΣ(ΑΑΣ'|title }}{{ "ΑΣ'Α ΑΣ. ΑΣ.Α Α\u0301Σ Σ"|lower }}{{ 'ΑΑΣ'.title() }}{{ 'ΑΣ'|capitalize }}{{ 'foo-bar (baz) "x'|title }}
{{ 10 / 9007199254740993 }}|{{ 9007199254740993 / 3 }}|{{ -9223372036854775807 / 9007199254740995 }}|{{ 9223372036854775807 / 7 }}|{{ 1 / -9223372036854775807 }}
{{ (-2)|round(-1, 'ceil') }}{{ (-0.5)|round(method='ceil') }}{{ (-0.5)|round }}{{ (0.5)|round(0, 'floor') }}{{ (-0.5)|filesizeformat }}{{ (-1.5)|filesizeformat }}
{% for x in l %}{{ loop }}{% endfor %}{% for x in l if x > 1 %}{{ [loop] }}{% endfor %}{% for x in l|map('string') %}{{ loop }}{% endfor %}
{% macro m() %}{{ caller }}{% endmacro %}{{ m }}{{ [m] }}{% call m() %}{% endcall %}
{% for x, y in m if x %}{{ loop.nextitem }}{{ loop.previtem }}|{% endfor %}{% for x, y in m %}{{ loop.nextitem }}{{ loop.previtem }}|{% endfor %}
{% for x, (y, z) in [[1, [2, 3]], [4, 'ab']] if x %}{{ loop.nextitem }}{{ loop.previtem }}{{ y }}|{% endfor %}
{% autoescape true %}{% set x %}<{% endset %}{{ x }}{{ '<' ~ x }}{{ x ~ '<' }}{{ html ~ '>' }}{% set y | upper %}<a{% endset %}{{ y }}{{ y + '<' }}{% endautoescape %}{{ x ~ '<' }}
{% autoescape true %}{% block a %}<{{ html }}{% endblock %}{{ self.a() }}{{ html }}{% endautoescape %}|{{ self.a() }}
{% autoescape true %}{% for x in [['<'], '<'] recursive %}{% if x is string %}{{ x }}{% else %}<i>{{ loop(x) }}{% endif %}{% endfor %}{% endautoescape %}
{% for x, in [[1], [2]] %}{{ x }}{% endfor %}
{% for x, y, in m %}{{ x }}{% endfor %}
{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% for x in l %}{% generation %}{% for y in l %}{{ y }}{% break %}{% endfor %}b{% endgeneration %}{% endfor %}
{% for x in l %}{% set loop = 1 %}{% endfor %}
{% for loop in l %}{% endfor %}
{% for x in el %}{% else %}{% set loop %}{% endset %}{% endfor %}
{% for x in l %}{% macro f(loop) %}{{ loop }}{% endmacro %}{{ f(1) }}{% with loop = 2 %}{{ loop }}{% endwith %}{% macro loop() %}{% endmacro %}{% endfor %}
{% set loop = 1 %}{{ loop }}{% for x in l %}{{ loop.index }}{% endfor %}
{{ '{:#.2g}|{:#.2}|{:#.3G}|{:G}|{:.3g}|{:.0g}|{:.17g}'.format(99.99, 99.99, 1e-7, 1e20, 99999, 15.0, 0.1) }}{{ '%#.2g|%g|%G|%.10g' % (9.99, 1e6, 1e-5, 100) }}
"""


def cases():
    words = []
    for text in (EXPRESSIONS, FILTERED):
        for line in text.strip().split("\n"):
            words += split_expressions(line)
    templates = ["{{ " + w + " }}" for w in words] + TEMPLATES
    templates += [line.replace("NL", "\n") for line in MORE.strip("\n").split("\n")]
    return [(t, CONTEXT) for t in templates + CHATS]


def split_expressions(line):
    """An expression ends at a blank outside of brackets and quotes that no operator is next to."""
    joined, out, depth, quote = "", [], 0, ""
    words = {"in", "is", "and", "or", "not", "if", "else"}
    for c in line:
        if quote:
            quote = "" if c == quote and not joined.endswith("\\") else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == " " and depth == 0:
            out.append(joined)
            joined = ""
            continue
        joined += c
    out.append(joined)
    merged, glue = [], False
    tests_with_argument = {"divisibleby", "sameas", "eq", "equalto", "ne", "gt", "ge", "lt", "le",
                           "greaterthan", "lessthan", "in", "=="}
    for i, w in enumerate(out):
        if w == "not" and merged and i + 1 < len(out) and out[i + 1] == "in":
            merged[-1] += " not"
            glue = True
            continue
        after_test = merged and " is " in merged[-1] and merged[-1].split()[-1] in tests_with_argument
        if merged and (glue or after_test or w in words - {"not"} or
                       (w == "not" and merged[-1].split()[-1] in ("is", "not"))):
            merged[-1] += " " + w
        else:
            merged.append(w)
        glue = w in words
    return merged


def random_cases(seed, n):
    """Expressions put together at random: seeds are printed by who asks."""
    rng = random.Random(seed)
    names = ["s", "u", "e", "i", "n", "f", "t", "l", "ls", "d", "p", "nothing", "q", "html", "num"]
    atoms = names + ["none", "1", "2.5", "'x'", "[]", "{}", "(1, 2)"]
    words = split_expressions(FILTERED.replace("\n", " ").strip())
    filters = [w.split("|", 1)[1] for w in words if re.match(r"\w+\|", w) and " " not in w
               and "random" not in w and "pprint" not in w]
    operators = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
    tests = ["defined", "odd", "string", "mapping", "sequence", "iterable", "none", "number",
             "lower", "in l", "eq 7"]

    def expression(depth):
        kind = rng.randrange(7) if depth > 0 else 0
        if kind == 0:
            return rng.choice(atoms)
        if kind == 1:
            return f"({expression(depth - 1)} {rng.choice(operators)} {expression(depth - 1)})"
        if kind in (2, 3):
            return f"({expression(depth - 1)})|{rng.choice(filters)}"
        if kind == 4:
            return f"({expression(depth - 1)} is {rng.choice(tests)})"
        if kind == 5:
            index = rng.choice(["0", "-1", "1:", "::-1", ":2", "'b'"])
            # Jinja2 computes slices of constants when it compiles, by other rules
            what = rng.choice(names) if ":" in index else expression(depth - 1)
            return f"({what})[{index}]"
        return f"[{expression(depth - 1)}, {expression(depth - 1)}]"

    return [("{{ " + expression(3) + " }}", CONTEXT) for _ in range(n)]


def random_scopes(seed, n):
    """Statements put together at random that set and read a few names at all levels."""
    rng = random.Random(seed)
    numbers = itertools.count()

    def name():
        return rng.choice(["s", "i", "q", "new"])

    def body(depth):
        return "".join(statement(depth - 1) for _ in range(rng.choice([1, 2, 2, 3])))

    def signature():
        a, b = name(), name()
        return rng.choice(["", "x", a, f"{a}=5", f"x={a}", f"x={a}, y={b}", "s=i, i=2", "q=1, new=q"])

    def statement(depth):
        a, b, c = name(), name(), name()
        kind = rng.randrange(13) if depth > 0 else rng.randrange(3)
        if kind < 3:
            return rng.choice(["{{ %s }}", "{{ %s is defined }}", "{{ [%s] }}"]) % a
        if kind < 5:
            return "{%% set %s = %s %%}" % (a, rng.choice(["1", b, f"{b} ~ 'x'", f"{b} if {c} else 3"]))
        if kind < 7:
            items = rng.choice(["l", "el", f"[{b}]"]) + rng.choice(["", "", f" if {c}"])
            other = rng.choice(["", "{% else %}" + body(depth)])
            return "{%% for %s in %s %%}%s%s{%% endfor %%}" % (rng.choice(["x", a]), items, body(depth), other)
        if kind == 7:
            other = rng.choice(["", "{% else %}", "{%% elif %s %%}" % c]) + body(depth)
            return "{%% if %s %%}%s%s{%% endif %%}" % (rng.choice(["t", "no", b]), body(depth), other)
        if kind == 8:
            return "{%% with %s %%}%s{%% endwith %%}" % (rng.choice(["", f"{a}={b}, {b}=3"]), body(depth))
        if kind == 9:
            m = f"m{next(numbers)}"
            call = "{{ %s(%s) }}" % (m, rng.choice(["", "7", b]))
            return "{%% macro %s(%s) %%}%s{%% endmacro %%}" % (m, signature(), body(depth)) + body(depth) + call
        if kind == 10:
            m = f"m{next(numbers)}"
            return "{%% macro %s() %%}%s{{ caller() }}%s{%% endmacro %%}{%% call(%s) %s() %%}%s{%% endcall %%}" % (
                m, body(depth), body(depth), signature(), m, body(depth))
        if kind == 11:
            return rng.choice(["{%% set %s %%}%s{%% endset %%}" % (a, body(depth)),
                               "{%% filter replace(%s ~ '', 'r') %%}%s{%% endfilter %%}" % (a, body(depth))])
        return rng.choice(["{%% generation %%}%s{%% endgeneration %%}" % body(depth),
                           "{%% block b%d %s%%}%s{%% endblock %%}" % (
                               next(numbers), rng.choice(["", "scoped "]), body(depth))])

    return [("".join(statement(3) for _ in range(3)), CONTEXT) for _ in range(n)]


def is_comparable(row):
    """Addresses, random choices and integers of any length are not."""
    text = row.get("text", row.get("error", ""))
    return " object at 0x" not in text and " of object" not in text and "<function" not in text \
        and "<class" not in text and "<built-in" not in text and "bound method" not in text \
        and "Exceeds the limit" not in text


def main():
    with open(sys.argv[1], "w") as out:
        for template, context in itertools.chain(cases(), random_cases(1, 400), random_scopes(1, 150)):
            row = {"template": template, **expected(template, context)}
            if is_comparable(row):
                out.write(json.dumps(row) + "\n")
    with open(sys.argv[1].replace("cases", "context").replace(".jsonl", ".json"), "w") as out:
        json.dump(CONTEXT, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
