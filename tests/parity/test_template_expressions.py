"""Compares Jinja expressions and statements with Jinja as transformers configures it: Lockstep renders the same text or refuses. If Jinja fails,
Lockstep must fail too. REFUSALS lists the templates that only Lockstep refuses, with words of the error: Lockstep must never render a
chat differently from transformers."""

import json
import os
import pathlib
import subprocess

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

DRIVER = pathlib.Path(os.environ.get("LOCKSTEP_PROGRAM", "build/release/lockstep")).parent / "template_driver"
VARIABLES = {
    "name": "Ada", "n": 7, "x": 2.5, "none_": None, "yes": True, "empty": "", "words": ["b", "A", "c"], "nested": [[3, 1], [2, 2], []],
    "user": {"role": "user", "content": "Hi é", "tags": ["t1", "t2"], "z": 1, "a": 2},
    "rows": [{"role": "user", "n": 1, "k": {"x": "q"}}, {"role": "tool", "n": 2, "k": {"x": "P"}}, {"role": "user", "n": 3, "k": {}}],
    "text": " Two\n lines \u00a0", "mixed": [1, "a", None, True, 2.0, {"k": []}], "floats": [0.1, 1e16, 1e-7, 123456789.125, -0.0],
    "odd": "ß ŉ ǅ ﬁ İ \u200b", "method": {"items": 5, "get": 6, "other": 7}, "big": 2**62,
}

EXPRESSIONS = {
    "numbers": r"""
1 + 2 * 3 ** 2
2 ** 3 ** 2
-2 ** 2
2 ** -1
0 ** -1
(-8) ** 0.5
(-1) ** 1000000000000001, (-1) ** 1000000000000000, 0 ** 0, 0 ** 5, 1 ** 99999999999
7 // 2, -7 // 2, 7 // -2, -7 // -2
7 % 3, -7 % 3, 7 % -3, -7 % -3
7.5 // 2, -7.5 // 2, 7.5 % 2, -7.5 % 2, 7.5 % -2
1 // 0.1, 1 % 0.1, -1 % 0.1
0.0 // 5, -0.0 // 5, 5 % 5.0, -5 % 5.0
7 / 2, 4 / 2, 1 / 3
1 / 0
1 // 0
1 % 0
1.5 / 0
1.5 % 0.0
0.1 + 0.2
1e16, 1e15, 123456789012345680.0, 1e22, 1e-4, 1e-5, 1.0e+3
1_000 + 1
1e3, 1E3, 1e+3, 1.5e-3
-n | abs, -x | abs
+n, +x, +yes, -yes, - -n
true + true, true * 3, yes / 2
1 < 2 < 3, 1 < 2 > 3, 3 > 2 > 1 == 1
1 == 1.0, true == 1, '1' == 1, none == false, 0 == false
big + big
big * 2 - big
big * 4
1.0 == 1, 2.5 < 3, 3 <= 3.0, 2 >= 2.5, 2 != 2.0
1 < 'a'
none < 1
none == none, none != none
missing == missing, missing != 1, missing == none
missing < 1
missing + 1
missing * 2
-missing
0x10 + 0b11 + 0o17
00
007
1__0
1_
1.5.2
1.e5
.5
1e
floats
floats | join(' ')
2.0 ** 0.5, 4 ** 0.5
2.0 ** 10000
1e308 * 10, -1e308 * 10
10 ** 18
10 ** 19
3 if 1 else 2, 3 if 0, (3 if 0 else 2 if 0 else 1)
""",
    "strings": r"""
'a' 'b' ~ 1 * 2
'a' + 'b' * 2, 'ab' * 0, 'ab' * -1, 2 * 'ab'
'a' + 1
'a' - 'b'
'a' ~ none ~ true ~ 1.0 ~ missing ~ [1]
'a\n\t\'\"\\\u00e9\x41\101\0'
"a\qb"
'\U0001F642', '\a\b\f\v' | length
'\x4'
'\u12'
'\U00110000'
'\N{BULLET}'
'\ud800'
'abc'[0], 'abc'[-1], 'héllo'[1], 'abc'[9], 'abc'[-9]
'abc'['a']
'héllo'[1:3], 'abc'[::-1], 'abcdef'[1:5:2], 'abcdef'[5:1:-2], 'abc'[:-1], 'abc'[9:], 'abc'[-9:2], 'abc'[::], 'abc'[none:2]
'abc'[::0]
'abc'['a':]
'b' in name, 'd' in name, '' in name, 'x' not in name
1 in name
none in name
'a' < 'b', 'B' < 'a', 'é' > 'z', '' < 'a', 'ab' < 'abc', '\uffff' < '\U0001F642'
'it\'s', ["it's"], ['a"b'], ["'\""], ['\n\t\\\x01\x7f'], ['é'], ['\u200b\u00ad\u00a0\u2028'], ['\U000e0001'], ['\u0378']
[odd]
'abc'.upper(), 'ÀÉß'.upper(), 'ÿ'.upper(), 'ά'.upper(), 'ж'.upper(), 'ǆ'.upper()
'ABC'.lower(), 'ÀÉ'.lower(), 'İ'.lower(), 'Σ'.lower(), 'ΑΣ'.lower(), 'ЖЯЀ'.lower(), 'Ǆ'.lower(), 'ẞ'.lower()
odd.lower(), 'µſıς'.upper()
'ŉ'.upper()
'ﬁ'.upper()
'ǅ'.upper()
'ǆ'.title()
'ᾳ'.upper()
'ά a'.title(), 'ßa'.title(), 'ა'.capitalize(), 'ა'.upper()
'ada byron'.title(), "it's".title(), 'aDA'.title(), '1a b2c'.title(), 'éa ÉA'.title(), 'a_b-c'.title()
'aDA'.capitalize(), ''.capitalize(), 'éA'.capitalize(), '1A'.capitalize()
' a b '.strip(), ' a '.lstrip(), ' a '.rstrip(), 'xax'.strip('x'), 'xyaxy'.strip('yx'), 'a'.strip(''), 'éaé'.strip('é')
text.strip(), '\u00a0a\u2003'.strip(), '\x85a\x1c'.strip(), '\u200ba\ufeff'.strip() | length
' a '.strip(none)
'a'.strip(1)
'a,b,,c'.split(','), 'a,b,c'.split(',', 1), 'a,b,c'.rsplit(',', 1), 'abc'.split('x'), ''.split(','), 'aXXb'.split('XX')
'a,b,c'.split(',', maxsplit=1), 'a b'.split(sep=' '), 'a,b'.split(',', 0), 'a,b,c'.split(',', -1), 'a,b,c'.rsplit(',', 0)
' a  b '.split(), ''.split(), ' '.split(), 'a\u00a0b\u2003c'.split(), 'a\tb\nc'.split()
' a  b c '.split(none, 1), ' a  b c '.rsplit(none, 1), ' a b '.split(maxsplit=0), ' a  b c '.rsplit(), ' a b c'.split(none, 5)
'a'.split('')
'a'.split(1)
'a\nb\r\nc\rd\n'.splitlines(), ''.splitlines(), '\n'.splitlines(), 'a\x0bb\x0cc\x1cd\x85e\u2028f'.splitlines()
'a\nb\n'.splitlines(true), 'a\r\nb'.splitlines(keepends=true)
'abc'.startswith('ab'), 'abc'.endswith(('x', 'c')), 'abc'.startswith(''), 'abc'.startswith(()), 'abc'.endswith('abcd')
'abc'.startswith('b', 1), 'abc'.endswith('b', 0, 2), 'abc'.startswith('b', -2), 'abc'.startswith('', 4)
'abc'.startswith(['a'])
'abc'.startswith(1)
'abc'.startswith()
'aXa'.replace('a', 'b', 1), 'aaa'.replace('a', 'b'), 'abc'.replace('', '-'), ''.replace('', 'x'), 'abc'.replace('', '-', 2), 'aaa'.replace('aa', 'b')
'a'.replace('a')
'a'.replace('a', 1)
'abcb'.find('b'), 'abcb'.rfind('b'), 'abc'.find('x'), 'abcb'.find('b', 2), 'abcb'.find('b', 2, 3), 'éb'.find('b'), 'abc'.find('', 3), 'abc'.find('', 4)
'abcb'.index('b'), 'abcb'.index('b', 2), 'abcb'.rindex('b')
'abc'.index('x')
'banana'.count('a'), 'banana'.count('ana'), 'banana'.count(''), 'banana'.count('a', 2), 'banana'.count('a', 2, 4)
','.join(words), ''.join('abc'), ','.join([]), ','.join(user)
','.join([1])
','.join(1)
'a=b=c'.partition('='), 'a'.partition('='), 'a=b=c'.rpartition('='), 'a'.rpartition('=')
'a'.partition('')
'a1'.isalnum(), 'é1'.isalnum(), ''.isalnum(), 'a b'.isalnum(), '٣'.isdigit(), 'a'.isdigit(), '12'.isdigit(), '１'.isdigit()
'é'.isalpha(), 'a1'.isalpha(), '日本'.isalpha(), ' \n'.isspace(), '\u00a0'.isspace(), ''.isspace(), '２'.isdecimal()
'²'.isdigit()
'½'.isnumeric()
'aB'.isupper(), 'A1'.isupper(), 'b'.islower(), '1'.islower(), 'É'.isupper(), 'ª'.islower(), 'ǅ'.isupper(), 'ß'.islower(), '日'.islower()
'abc'.removeprefix('ab'), 'abc'.removesuffix('bc'), 'abc'.removeprefix('x'), 'abc'.removesuffix('')
'7'.zfill(3)
'a'.ljust(3) ~ '|'
'ab'.center(5, '*')
'AbÉ'.swapcase()
'ẞA'.casefold()
'a b'.istitle()
'a\tb'.expandtabs(4)
'a'.upper(1)
'a'.strip('a', 'b')
'a'.nothing
'a'.nothing()
'a'.encode()
'{} {}'.format(1, 'b')
'%s-%d' % ('a', 3)
'%s' % name
name.__class__
name['__class__']
'a'.isascii(), 'é'.isascii()
'Ada' == name, 'Ada' is eq name
'abc'|list
""",
    "lists": r"""
[1] + [2, 'x'], (1,), (1, 2) + (3,), [], (), ('a', 'b')
[1] + (2,)
[1] * 2, 2 * [1], [1] * 0, (1, 2) * 2
words[0], words[-1], words[9], words.1, words[1:], words[::-1], words[:2], words[5:], words[-2:]
words['0']
nested.0.1, nested[0][1], nested.2
words[1.0]
words[true]
words[none]
[1, 2] == [1, 2], [1] == (1,), [1, 2] != [2, 1], [[1], []] == nested, (1, 2) == (1, 2.0)
[1, 2] < [1, 3], [1] < [1, 0], [none, 1] < [none, 2], [[1], 2] < [[1], 3], (1, 'a') < (1, 'b')
[1] < (2,)
[1, 'a'] < [1, 2]
1 in [1, 2], '1' in [1, 2], 1.0 in [1, 2], none in mixed, [1] in [[1]], 'k' in [{'k': 1}]
1 in 1
1 in none
'a' in missing
words.index('A'), words.count('c'), [1, 1.0, true].count(1)
words.index('q')
words.append('d')
words.sort()
words.pop()
words.copy()
words.nothing
words | length, nested | length, '' | length, user | length, missing | length, (1, 2) | count
none_ | length
n | length
{'a': 1, 'b': [none, true, "it's"]}, {}, {1: 2, 'x': (1,)}, {'a': {'b': {}}}
{'a': 1, 'a': 2}, {1: 'i', 1.0: 'f', true: 'b'}, {none: 1, (1, 2): 3, 2.5: 4}
{[1]: 2}
{{}: 2}
user.role, user['content'], user.missing, none_.x, none_['x'], user['missing'], n.x, x['y']
user.missing.more
missing.more
missing['more']
missing[0]
missing[1:]
missing()
user.role()
user()
none_.x.y
user.get('role'), user.get('q'), user.get('q', 'w'), user.get('z', 3)
user.get('z', default=3)
user.get([])
user.get()
user.items() | list, user.keys() | list, user.values() | list
method['items'], method.get('items'), method.other, method.get('get'), method['values']() | list | length
user.items()
user.keys()
user.values()
user.items()[0]
user.keys() | length, user.items() | length, user.items() | first, user.keys() | last, user.keys() | join(',')
'role' in user.keys(), 1 in user.values(), ('z', 1) in user.items(), 'q' in user.keys()
user.keys() | sort, user.items() | sort | first
user.pop('z')
user.update({'a': 1})
user.setdefault('a', 1)
user.clear()
user.copy()
dict(a=1), dict(a=1).a, dict({'b': 2}, a=1), dict(), dict([('a', 1), ('b', 2)])
dict(1)
range(3)
range(3) | list, range(1, 3) | list, range(4, 0, -2) | list, range(0) | list, range(3, 1) | list, range(-2, 2) | list
range(3)[1], range(3)[-1], range(3)[7], range(5) | length, 2 in range(3), range(3) | sum, range(3) == range(3), range(3) == [0, 1, 2]
range(10)[2:5] | list, range(3) | reverse | list, range(3) | last, range(3) is sequence, range(3) is iterable, range(3) is mapping
range()
range(1, 2, 0)
range('a')
range(1.5)
range(200000)
range(3) | tojson
range(3) + [1]
{'a': 1} == {'a': 1.0}, {'a': 1, 'b': 2} == {'b': 2, 'a': 1}, {'a': 1} == {'a': 2}, {} == []
'role' in user, 'q' in user, 1 in {1.0: 2}, none in user, 'q' not in user
user is mapping, [] is mapping, user is sequence, user is iterable, 'a' is iterable, n is iterable, none is iterable, 1 is sequence
{'a': 1} < {'a': 2}
user + user
user[0]
""",
    "conditions": r"""
none_ or 'x', empty or n, name and n, 0 or '', [] or {}, missing or 'y', 0.0 or 1, '' and missing, (0,) and 1
not 1 == 2, not none_, not [0], not '', not missing, not (not yes)
'y' if missing else 'n', 'y' if missing, 'y' if [0] else 'n', 'y' if 0.0 else 'n', 'y' if ' ' else 'n'
1 if 1 else 1 / 0, 1 or 1 / 0, 0 and 1 / 0
yes and no or n
1 == 1 and 2 == 2 or 1 / 0
name is string, n is string, none_ is none, missing is none, none_ is not none, missing is defined, none_ is defined, missing is undefined
user.q is defined, user.role is defined, words[7] is defined, words[0] is not undefined, (1).x is defined
missing.q is defined
n is number, x is number, yes is number, '1' is number, n is integer, yes is integer, x is integer, x is float, n is float, yes is boolean, 1 is boolean
yes is true, 1 is true, 0 is false, false is false, none is false
3 is odd, 4 is odd, 4 is even, -1 is odd, 3.0 is odd, 3.5 is odd, 2.0 is even, true is odd
'a' is odd
4 is divisibleby(2), 4 is divisibleby 3, 4.0 is divisibleby(2), 4 is divisibleby(0.5)
4 is divisibleby
4 is divisibleby(0)
'a' is in ['a'], 'a' is in 'cab', 'a' is not in ['a'], 1 is in [1, 2], 'role' is in user
1 is in (1, 2)
1 is in((1, 2))
1 is eq -1
1 is in [1] is true
5 is divisibleby 2 + 3
'a' is in 'abc' ~ 'd', 'x' is eq 'x' | upper, 3 is eq none, 3 is eq (3)
missing is callable
missing is odd
1 is eq 1, 1 is equalto(2), 1 is ne 2, 1 is lt 2, 2 is gt 1, 1 is le 1, 1 is ge 2, 1 is lessthan 2, 3 is greaterthan 2
1 is sameas 1, 1 is sameas 1.0, none is sameas none, true is sameas true, 1 is sameas true, false is sameas 0, none is sameas false
[1] is sameas [1]
words is sameas words
'ab' is lower, 'aB' is lower, 'AB' is upper, '1' is upper, '' is lower, 1 is lower, 'É' is upper
raise_exception is callable, name is callable, name.upper is callable
'trim' is filter
'odd' is test
'a' is escaped
1 is nothing
1 is not nothing
n is odd and x is not integer
n is odd is true
not n is odd
n is not odd or yes
1 + 1 is odd
[1, 2] is sequence, (1,) is sequence, 'a' is sequence, missing is sequence, missing is iterable
user.tags is iterable and user.tags is not string and user.tags is not mapping
(user.content is string) and (user.content | length > 2)
1 in [1] == true
not 1 in [2]
yes if yes is true else none
""",
    "filters": r"""
user | tojson, [] | tojson, {} | tojson, none | tojson, 1.0 | tojson, true | tojson, (1, 2) | tojson, floats | tojson
[1, {'a': []}, {}] | tojson(indent=2), {'a': {'b': [1, 2]}} | tojson(indent=1), [1] | tojson(indent=0), [1] | tojson(indent=none)
[1, [2]] | tojson(indent=-1), [1, [2]] | tojson(indent=true), [1, [2]] | tojson(indent='--'), [1] | tojson(indent='')
'<é"\n\\/\x7f\x01\u2028>' | tojson, 'é\U0001F642' | tojson(ensure_ascii=true), 'é' | tojson(true), ['é'] | tojson(false, 2), {'é': 1} | tojson(ensure_ascii=true)
{'b': 1, 'a': 2} | tojson(sort_keys=true), [1, {'a': 2}] | tojson(separators=(',', ':')), [1, {'a': 2}] | tojson(indent=1, separators=(';', '=')), [1] | tojson(2)
{1: 2, none: 3, true: 4, 2.5: 5} | tojson
{(1, 2): 3} | tojson
missing | tojson
[missing] | tojson
user.items() | tojson
words | map('upper') | tojson
1 | tojson(nothing=1)
'  a b ' | trim, 'xax' | trim('x'), text | trim, '\u00a0a' | trim, 1 | trim, none_ | trim, missing | trim, 'a' | trim(chars='a')
'\x85 \u2003a\x1f' | trim | length
words | join, words | join(','), [1, none, true] | join('-'), rows | join(',', attribute='role'), rows | join('|', 'n'), '' | join(','), 'abc' | join('-'), user | join(',')
n | join
words | first, words | last, [] | first, '' | last, 'é1' | last, user | first, user | last, [] | last
none_ | first
words | list, 'é1' | list, user | list, missing | list, (1, 2) | list
n | list
'12' | int + 1, 'x' | int, '1.9' | int, '-3' | int, ' 4 ' | int, '' | int, none_ | int, true | int, 3.9 | int, -3.9 | int, [] | int, '1e3' | int
'0x1F' | int, 'ff' | int(0, 16), '0x1f' | int(0, 16), '0b11' | int(0, 2), '12_3' | int, '1_' | int, 'z' | int(default=5), 'z' | int(none), 'inf' | int, 'nan' | int, '٣' | int
'077' | int(0, 8), '0o17' | int(base=8), '12' | int(0, 0), 'zz' | int(0, 36), '5' | int(base=2), '1.5' | int(7, 16), '+5' | int, '- 5' | int
missing | int
missing | float
'99999999999999999999' | int
'5' | int(0, 99)
1e30 | int
'1.5' | float, ' 1.5 ' | float, 'x' | float, '' | float, 'x' | float(2), 'x' | float(default=1.5), 'inf' | float, '-Infinity' | float, 'nan' | float, '1_0.5' | float, '0x10' | float, none | float, true | float, '1e400' | float, '.5' | float, '5.' | float, 'nan(1)' | float
n | string + '!', none_ | string, [1] | string, x | string, missing | string
missing | default('d'), empty | default('d'), empty | default('d', true), none_ | default('d'), none_ | default('d', boolean=true), missing | default, missing | d(1), 0 | default(3, true), user.q | default('w'), missing | default(default_value='v')
user | items | list, missing | items | list
1 | items | list
user | dictsort, user | dictsort(reverse=true) | first, {'b': 1, 'A': 2, 'a': 0} | dictsort, {'b': 1, 'A': 2, 'a': 0} | dictsort(true), {'b': 'z', 'c': 'Y'} | dictsort(by='value'), {'b': 2, 'c': 1} | dictsort(false, 'value')
user | dictsort(by='nothing')
words | sort, words | sort(true), words | sort(case_sensitive=true), words | sort(reverse=true, case_sensitive=true), rows | sort(attribute='n', reverse=true) | map(attribute='n') | list, [3, 1.5, 2] | sort, nested | sort, 'bca' | sort, user | sort
rows | sort(attribute='role,n') | map(attribute='n') | list, rows | sort(attribute='role') | map(attribute='n') | list, [[2, 1], [1, 2]] | sort(attribute='1'), [[2, 1], [1, 2]] | sort(attribute=0)
[1, 'a'] | sort
rows | sort
[3, 1, 3, 1.0] | unique | list, ['a', 'A', 'b'] | unique | list, ['a', 'A'] | unique(true) | list, rows | unique(attribute='role') | map(attribute='n') | list, 'aAb' | unique | join
words | reverse | list, 'héy' | reverse, (1, 2) | reverse | list, user | reverse | list, [] | reverse | list
n | reverse
2.5 | round, 3.5 | round, -2.5 | round, 42 | round, 42.55 | round(1), 0.15 | round(1), 2.675 | round(2), 1234.5 | round(-2), 1250 | round(-2), 2.1 | round(method='ceil'), 2.9 | round(0, 'floor'), 2.123 | round(2, 'ceil'), -2.15 | round(1, 'floor'), 1e22 | round(2), 0.5 | round, 1.005 | round(2), 5.015 | round(2)
2.5 | round(1, 'nothing')
'a' | round
true | round, 3 | round(2), 7 | round(1, 'ceil'), 15 | round(-1), 25 | round(-1)
'a\nb\n\nc' | indent(2), 'a\nb' | indent, 'a\nb' | indent(first=true), 'a\n\nb' | indent(2, blank=true), 'a\nb' | indent('> '), 'a\nb\n' | indent(2, true), '' | indent(2, true), 'a\r\nb' | indent(1), 'a\n' | indent(2, true, true), 'a\nb' | indent(width=3), '\na' | indent(2), 'a\nb' | indent(0)
1 | indent
'ada' | upper, 'ADA' | lower, 1 | upper, none_ | lower, 'aDA' | capitalize, 'ÿ' | upper, 'ß' | upper
'ada byron' | title, "it's a dog's" | title, 'aDA' | title, 'a-b (c [d {e <f' | title, 'a.b_c' | title, '1a 2b' | title, 'éa' | title
'aXa' | replace('a', 'b'), 'aaa' | replace('a', 'b', 2), 'abc' | replace('', '-'), 1 | replace('1', '2'), 'a' | replace('a', 1), 'aa' | replace('a', 'b', count=1), 'a1' | replace(1, 2)
'a' | replace('a')
n | abs, -2.5 | abs, false | abs
'a' | abs
user | attr('items') is callable, user | attr('role') is defined, name | attr('upper') is defined, name | attr('q') is defined
[1, 2, 3] | batch(2) | list, [1, 2, 3] | batch(2, 0) | list, [] | batch(2) | list, [1] | batch(3, 'x') | list, 'abc' | batch(2) | list
[1] | batch | list
[1, 2, 3] | slice(2) | list
'a b c' | wordcount, "it's a-b" | wordcount, '' | wordcount, 'é ü_1' | wordcount, 'a, b. c!' | wordcount
rows | selectattr('role', 'equalto', 'user') | map(attribute='n') | list, rows | selectattr('k.x') | map(attribute='n') | list, rows | selectattr('n', 'gt', 1) | list | length, rows | selectattr('q') | list, rows | selectattr('k.x', 'defined') | list | length
rows | rejectattr('role', 'in', ['user']) | map(attribute='n') | join(','), rows | rejectattr('role', 'eq', 'user') | list | length, rows | rejectattr('k.x') | map(attribute='n') | list, rows | selectattr('role', '==', 'tool') | list | length
rows | selectattr('role', 'nothing') | list
[1, 0, '', 'a', none] | select | list, [1, 2, 3] | select('odd') | list, [1, 2, 3] | reject('odd') | list, [1, 2, 3] | select('divisibleby', 3) | list, mixed | select('string') | list, [1, 0] | reject | list
words | map('upper') | join, words | map('replace', 'b', 'q') | join, ['1', 'x'] | map('int', 5) | list, rows | map(attribute='k.x', default='-') | join, rows | map(attribute='q') | list | length, [[1, 2], [3]] | map('first') | list, [[1, 2], [3]] | map(attribute=0) | list, words | map('default', 'a') | list, ['1'] | map('int', base=2) | list
words | map | list
words | map('nothing') | list
[3, 1] | sum, rows | sum(attribute='n'), [0.1, 0.2] | sum, [] | sum, [1] | sum(start=5), [[1], [2]] | sum(start=[]), rows | sum('n', 10)
words | sum
[3, 1] | min, [3, 1] | max, ['b', 'A'] | min, ['b', 'A'] | min(true), ['b', 'C'] | max(case_sensitive=true), [] | min, rows | max(attribute='n'), 'bca' | max, rows | map(attribute='n') | max, user | min, [1, 1.0] | max, ['a', 'A'] | min, ['a', 'A'] | max
rows | min(attribute='k.x') is defined
[1, 'a'] | min
'<a href="x">\'&</a>' | escape, 1 | e, '<' | e | length, '<' | safe, missing | e
'<' | e | e, '<' | safe | e
'<' | forceescape
rows | groupby('role') | list | length
'abc def' | truncate(5)
'abc' | center(7) ~ '|'
'a b' | urlencode
'<b>x</b> y' | striptags
'a b c d' | wordwrap(3)
1000000 | filesizeformat
'%s-%s' | format('a', 'b')
words | random is in words
1 | nothing
'a' | upper(1)
'a' | length(1)
words | list(1)
n | string(1)
'a' | trim | upper | lower | title | length
'a' | upper ~ 'b' | upper
-1 | abs, (-1) | abs, 2 * -3 | abs
[1, 2, 3][1:] | sum
words | map('length') | sum
words | pprint
""",
    "generators": r"""
'y' if words | map('upper') else 'n', 'y' if [] | map('upper') else 'n', 'y' if [] | select else 'n', 'y' if rows | selectattr('n', 'gt', 9) else 'n'
not [] | select, ([] | reject) and 1, (([] | unique) or 2) is defined, [] | batch(2) is defined
words | map('upper') | length
words | select | count
words | map('upper') | last
words | map('upper') | first, words | map('upper') | list | last, words | map('upper') | sort | join, words | map('upper') | map('lower') | join
(words | map('upper'))[0] is defined, (words | map('upper')).x is defined
(words | map('upper'))[0:1]
(words | map('upper')) == ['B', 'A', 'C'], (words | map('upper')) + []
(words | map('upper')) == ['B', 'A', 'C']
'A' in words | map('upper'), 'Z' in words | map('upper')
words | map('upper') is sequence, words | map('upper') is iterable, words | map('upper') is string, words | map('upper') is mapping
words | reverse is iterable, words | reverse | first
words | reverse | length
words | unique | length
words | batch(2) | length
user | items | length
words | map('upper') | reverse | list
','.join(words | map('upper')), words | map('upper') | unique | list, words | select | min, rows | map(attribute='n') | sum
""",
    "syntax": r"""
1 +* 2
1 +
'a
)
(1
[1
{'a'
{'a': }
a b
1 2
a.
a.'b'
a[
a[]
a[1:2:3:4]
a | 
a is
a if
a if 1 else
not
()
(1,)
1,
[1,]
[,]
{'a': 1,}
f(a=1, 2)
f(a=1, a=2)
name.upper(,)
name.upper().lower()
(name | upper).lower()
name | upper.lower()
[words][0][1]
{'a': words}.a[0]
{'a': words}['a'] | first
a = 1
a == = 1
1 <> 2
1 && 2
!a
a ? b : c
a; b
$a
`a`
@a
a ** b ** c
é
user.é
_a
a1_b
True, true, False, false, None, none, TRUE, NONE
loop
loop.index
self
super
namespace
varargs
caller
lambda x: x
[i for i in words]
x.1.2
not not yes
- - 1
1 if 2
words[1, 2]
name.upper ( )
name . upper()
user [ 'role' ]
user.role . upper()
"a" "b" 'c'
1.5.real
(1).real
(1).nothing, name.real
*words
dict(**user).role
name.upper(*[])
""",
}

TEMPLATES = {
    "white space": [
        "a\n", "a\n\n", "a\r\nb\r\n", "a\rb", "\n", "", " ", "{{ n }}\n", "{{ n }}\n\n", "{{ n }}\nb",
        "{% if yes %}\nb\n{% endif %}\nc", "  {% if yes %}  b{% endif %}", "x\n  {% if yes %}\n  b\n  {% endif %}\n", "x  {%- if yes -%}  b  {%- endif -%}  y",
        "x\n  {%+ if yes %}b{% endif +%}\ny", "  {{ name }}\n  {{- n -}}\n  .", "a{# note #}\nb\n  {#- cut -#}\n c", "  {# c #}  \nx", "{# c #}\n\nx", "a {#+ c +#}\n b",
        "{% raw %}{{ not }}{% endraw %}!", "{% raw -%}  {{ a }}  {%- endraw %} b", "  {% raw %}\n a{% endraw %}\n b", "{%- raw -%} {% if %} {%- endraw -%} x", "{% raw %}a\n  {% endraw %}b", "{%+ raw %} x {% endraw +%}\ny",
        "{{ n }}  {% if yes %} a {% endif %}  {{ n }}", "\t{% if yes %}\ta\t{% endif %}\tb", "a\n\t {% set b = 1 %} \n\t {{ b }}", "\u00a0{%- if yes -%}\u00a0b{% endif %}", "a\n\u00a0{% if yes %}b{% endif %}",
        "a\x0b{%- if yes -%}\x0cb{% endif %}", "{% if yes -%}\n\n  b\n\n{%- endif %}", "{{ n -}}\n\n{{- n }}", "{%if yes%}a{%endif%}", "{%-if yes-%}a{%-endif-%}", "{{n}}{{-n-}}{{+n}}", "{{+n+}}", "{% raw %} {%+ endraw %} x", "{% raw %}{% rawx %}{% endraw -%}\n x", "{{ n +}}\nb", "{{ -n }} {{- -n }}",
        "{% if yes %}\r\nb{% endif %}", "a{% if yes %}\n\n\nb{% endif %}", "}} %} #}", "{ { n } }", "{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a': {'b': 1}}}}", "{% if '%}' %}x{% endif %}", "{# {{ n }} {% if %} #}x", "{# a\n#}\n{# b #}c", "{{ 'a\nb' }}", "{{\n n\n}}\n{% if\nyes\n%}b{% endif\n%}",
        "{#}", "{##}", "{#-#}x", "{#--#} x", "a {#- -#} b", "{{", "{%", "{% if yes", "{{ n }", "{{ n %}", "{% if yes }}", "{# open", "{% raw %} open", "{%  %}", "{{ }}", "{{}}", "x{{ n }}{# c #}{{ n }}", "  {{ n }}  ", "{% set a = 1 -%}\n\n{{ a }}",
    ],
    "loops": [
        "{% for w in words %}{{ loop.index }}{{ w }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for r in rows if r.role == 'user' %}{{ r.n }}/{{ loop.length }} {% endfor %}",
        "{% for k, v in user.items() %}{{ k }};{% endfor %}", "{% for k in none_ or [] %}x{% else %}none{% endfor %}", "{% for k in user %}{{ k }}{% endfor %}", "{% for c in 'héy' %}{{ c }}.{% endfor %}",
        "{% for i in missing %}x{% else %}e{% endfor %}", "{% for i in none_ %}x{% endfor %}", "{% for i in n %}x{% endfor %}", "{% for a, b in nested %}{{ a }}{% endfor %}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}",
        "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, in [(1,)] %}{{ a }}{% endfor %}", "{% for a in 1, 2 %}{{ a }}{% endfor %}",
        "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
        "{% for i in words %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}", "{% for i in words %}{% for j in words %}{{ loop.depth }}{% endfor %}{% endfor %}",
        "{% for w in words %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('-', '+') }}{% endfor %}", "{% for w in words %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }}{% endfor %}", "{% for w in words %}{{ loop.cycle() }}{% endfor %}", "{% for w in words %}{{ loop.nothing is defined }}{% endfor %}",
        "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}", "{% for i in words %}{{ loop }}{% endfor %}", "{% for i in words %}{% set loop.index = 1 %}{% endfor %}", "{% for i in words %}{{ loop['index'] }}{% endfor %}", "{% for i in words %}{% set outer = loop %}{% for j in words %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
        "{% for i in words recursive %}{{ i }}{% endfor %}", "{% for i in nested %}{% for j in i %}{{ j }}{% else %}-{% endfor %}{% endfor %}", "{% for i in words %}{{ i }}{% else %}e{% endfor %}", "{% for i in words if false %}{{ i }}{% else %}e{% endfor %}", "{% for i in words if loop.index == 1 %}{{ i }}{% endfor %}",
        "{% for i in [1, 2] if i > 1 and i < 5 %}{{ i }}{% endfor %}", "{% for i in words %}{% break %}x{% else %}e{% endfor %}", "{% break %}a", "a{% continue %}b", "{% if yes %}{% break %}{% endif %}a", "{% for i in words %}{% macro m() %}{% break %}{% endmacro %}{{ m() }}{% endfor %}",
        "{% for i in words %}{% else %}{% break %}{% endfor %}", "{% for i in words %}a{% set t %}b{% break %}{% endset %}c{% endfor %}d", "{% for i in words %}a{% filter upper %}b{% continue %}{% endfilter %}c{% endfor %}d", "{% for i in words %}{% with %}{{ i }}{% break %}{% endwith %}{% endfor %}",
        "{% for m in words | map('upper') %}{{ m }}{{ loop.length }}{{ loop.last }}{% endfor %}", "{% for m in words | reverse %}{{ m }}{% endfor %}", "{% for i in range(3) | reverse %}{{ i }}{% endfor %}", "{% for k, v in user | dictsort %}{{ k }}{% endfor %}", "{% for k, v in user | items %}{{ k }}{% endfor %}",
        "{% set g = words | map('upper') %}{{ g | list }}{{ g | list }}", "{% set g = words | map('upper') %}{{ g | first }}{{ g | join }}", "{% set g = words | map('upper') %}{% for w in g %}{{ w }}{% endfor %}", "{% set g = words | select %}{% if g %}{% for w in g %}{{ w }}{% endfor %}{% endif %}",
        "{% for words in words %}{{ words }}{% endfor %}{{ words | length }}", "{% for i in words %}{% endfor %}{{ i }}", "{% for loop in words %}{{ loop }}{% endfor %}", "{% for i in words -%} {{ i }} {%- endfor %}", "{% for x in (1, 2) + (3,) %}{{ x }}{% endfor %}", "{% for a in words[1:] %}{{ a }}{% endfor %}", "{% for true in words %}{% endfor %}",
        "{% for g, items in rows | groupby('role') %}{{ g }}:{{ items | length }};{% endfor %}", "{% for l in [1, 2, 3] | batch(2) %}{{ l }}{% endfor %}", "{% for in words %}{% endfor %}", "{% for i words %}{% endfor %}", "{% for i in %}{% endfor %}", "{% for i in words %}", "{% endfor %}", "{% for i in words %}{% endif %}", "{% for a.b in words %}{% endfor %}",
    ],
    "scopes": [
        "{% set s = 1 %}{% for w in words %}{% set s = s + 1 %}{{ s }}{% endfor %}{{ s }}", "{% set s = 1 %}{% if yes %}{% set s = 2 %}{% endif %}{{ s }}", "{% if yes %}{% set s = 2 %}{% endif %}{{ s }}", "{% set a, b = 1, 'x' %}{{ a }}{{ b }}", "{% set (a, b) = (1, 2) %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = 'xy' %}{{ b }}", "{% set a, b = 1 %}", "{% set a, b = [1] %}",
        "{% set ns = namespace(i=0) %}{% for w in words %}{% set ns.i = ns.i + loop.index0 %}{% endfor %}{{ ns.i }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}{{ ns.b is defined }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}", "{% set ns = namespace(a=1) %}{{ ns }}", "{% set ns.a = 1 %}", "{% set user.a = 1 %}", "{% set ns = namespace(items=3) %}{{ ns.items }}", "{% set ns = namespace() %}{% set ns.t %}x{% endset %}{{ ns.t }}", "{% set ns = namespace(a=1) %}{{ 'a' in ns }}", "{% set ns = namespace(a=1) %}{% for k in ns %}{{ k }}{% endfor %}", "{% set ns = namespace(a=1) %}{{ ns | attr('a') }}", "{% set ns = namespace(a=1) %}{{ ns | length }}", "{% set ns = namespace(a=1) %}{{ ns is mapping }}{{ ns is iterable }}{{ 'y' if ns }}", "{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [1] %}{{ ns.a }}", "{% set a = namespace(x=1) %}{% set b = a %}{% set b.x = 2 %}{{ a.x }}", "{% set ns = namespace(1) %}", "{% set ns.a, b = 1, 2 %}",
        "{% set t %}<{{ name }}>{% endset %}{{ t | lower }}", "{% set t | upper %}a{{ name }}{% endset %}{{ t }}", "{% set t | replace('a', 'b') | upper %}aa{% endset %}{{ t }}", "{% set t %}{% endset %}[{{ t }}]{{ t is string }}", "{% set t %}a{% set u = 1 %}{% endset %}{{ u }}{{ t }}", "{% set a = 1 %}{% set a = a + 1 %}{{ a }}", "{% set range = 3 %}{{ range }}", "{% set name = name ~ '!' %}{{ name }}", "{% set x = y = 1 %}", "{% set %}", "{% set a %}", "{% set 1 = 2 %}", "{% set a.b.c = 1 %}", "{% set a[0] = 1 %}", "{% set true = 1 %}{{ true }}",
        "{% with a=1 %}{{ a }}{% endwith %}{{ a }}", "{% with a=1, b=a %}{{ b is defined }}{% endwith %}", "{% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with a = 1 %}{% set a = 2 %}{{ a }}{% endwith %}", "{% with a %}{% endwith %}", "{% filter upper %}{{ name }}b{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% filter upper %}{% set z = 1 %}{% endfilter %}{{ z }}", "{% filter nothing %}a{% endfilter %}",
        "{% if n > 9 %}a{% elif n > 5 %}b{% else %}c{% endif %}", "{% if n > 9 %}a{% elif n > 8 %}b{% elif n > 7 %}c{% endif %}d", "{% if none_ %}a{% else %}b{% endif %}", "{% if missing %}a{% endif %}b", "{% if 0 %}{% if 1 %}a{% endif %}{% else %}c{% endif %}", "{% if 1 if 0 else 1 %}a{% endif %}", "{% if a, b %}t{% endif %}", "{% if yes %}a{% else %}b{% else %}c{% endif %}", "{% if %}a{% endif %}", "{% if yes %}a{% elif %}b{% endif %}", "{% else %}", "{% if yes %}a{% elsif n %}b{% endif %}", "{% if yes %}a{% endfor %}", "{% if yes = 1 %}{% endif %}", "{% if x.y = 1 %}{% endif %}", "{% if yes: %}a{% endif %}",
        "{% set a %}b{% endset %}{% for i in [1] %}{% set a = a ~ i %}{{ a }}{% endfor %}{{ a }}", "{% for i in [1, 2] %}{% if i == 1 %}{% set f = 'y' %}{% endif %}{{ f }}|{% endfor %}", "{% for i in [1, 2] %}{{ s }}{% set s = i %}{% endfor %}", "{% set s = 0 %}{% for i in [1, 2] %}{{ s }}{% set s = i %}{{ s }}{% endfor %}{{ s }}",
    ],
    "macros": [
        "{% macro m(a, b='z') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{% set c = 1 %}{{ m(1) }}{{ m(b=2, a=3) }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=1, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(b=3) }}{{ m(4) }}",
        "{% macro m() %}a\n{% endmacro %}[{{ m() }}]", "{% macro m() -%} a {%- endmacro %}[{{ m() | upper }}]", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(q=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}", "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}x{% endcall %}", "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m() }}",
        "{% macro m(a) %}{% endmacro %}{{ m }}", "{% macro m(a) %}{% endmacro %}{{ m.name }}", "{% macro m(a) %}{% endmacro %}{{ m.arguments }}", "{% macro m(a) %}{% endmacro %}{{ m is callable }}{{ m is defined }}{{ 'y' if m }}", "{% macro m() %}{% set z = 1 %}{% endmacro %}{{ m() }}{{ z }}", "{% macro m() %}{{ name }}{% endmacro %}{% set name = 'B' %}{{ m() }}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% for i in [1, 2] %}{{ m() }}{% endfor %}{% macro m() %}x{% endmacro %}", "{{ m() }}{% macro m() %}x{% endmacro %}",
        "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m(1) }}{{ x }}", "{% macro m(items) %}{% for i in items %}{{ i }}{{ loop.index }}{% endfor %}{% endmacro %}{{ m(words) }}", "{% set f = 1 %}{% macro m() %}{{ f }}{% endmacro %}{% for i in [1] %}{% set f = 2 %}{{ m() }}{% endfor %}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro %}{% endmacro %}", "{% macro m() %}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ [1, 2] | map('string') | join }}{{ m(m(1)) }}", "{% macro m() %}<{{ name }}>{% endmacro %}{{ m() ~ '<' }}{{ m() + '<' }}{{ m() | length }}{{ m() == '<Ada>' }}", "{% macro m(a) %}{{ loop.index }}{% endmacro %}{% for i in [1] %}{{ m(1) }}{% endfor %}",
        "{% for i in [1] %}{% macro m(a) %}{{ loop.index }}{% endmacro %}{{ m(1) }}{% endfor %}", "{% macro m(a) %}{{ a.b.c }}{% endmacro %}{{ m({'b': {'c': 4}}) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{'a': 1}) }}{{ m(*[2]) }}",
        "{{ raise_exception('no') }}", "{% if false %}{{ raise_exception('no') }}{% endif %}ok", "{{ raise_exception() }}", "{{ strftime_now('x%%y') }}", "{{ strftime_now() }}", "{% include 'a' %}", "{% extends 'a' %}", "{% import 'a' as b %}", "{% from 'a' import b %}", "{% block a %}x{% endblock %}", "{% do words %}", "{% call m() %}{% endcall %}", "{% autoescape true %}{{ '<' }}{% endautoescape %}", "{% trans %}a{% endtrans %}", "{% nothing %}", "{% debug %}", "{{ joiner(',')() }}{{ cycler(1, 2).next() }}", "{{ lipsum() | length > 5 }}",
        "{{ ('<' | safe) + '<' }}", "{{ ('<' | escape) + '<' }}", "{{ ('a' | safe) ~ '<' }}", "{{ ['<' | safe] }}", "{{ ['<' | safe, '<'] | join }}", "{{ (words | tojson | safe) + '\n' }}", "{{ ('<' | e) is string }}{{ ('<' | e) == '&lt;' }}", "{{ ('<' | e) | upper }}", "{{ ('<' | safe) ~ ('<' | e) }}", "{{ '%s' | safe % '<' }}", "{{ ('a' | safe).replace('a', '<') }}", "{{ ('a,b' | safe).split(',') }}", "{{ ('a' | safe) * 2 }}", "{{ ('a' | safe) | tojson }}", "{{ ('a ' | safe) | trim }}", "{{ ('ab' | safe)[0] ~ ('ab' | safe)[:1] }}", "{{ 'x' if 'a' | safe else 'y' }}", "{{ ('a' | safe).upper() }}",
    ],
}

# Templates that Jinja accepts and Lockstep refuses, by words of the error.
REFUSALS = {
    "too large, or not a real number": ["{{ (-8) ** 0.5 }}"],
    "is too large": ["{{ big + big }}", "{{ big * 2 - big }}", "{{ big * 4 }}", "{{ 10 ** 19 }}", "{{ '99999999999999999999' | int }}", "{{ 1e30 | int }}"],
    "is not a supported escape": ["{{ '\\N{BULLET}' }}", "{{ '\\ud800' }}"],
    "case of": ["{{ 'ŉ'.upper() }}", "{{ 'ﬁ'.upper() }}", "{{ 'ǅ'.upper() }}", "{{ 'ǆ'.title() }}", "{{ 'ᾳ'.upper() }}"],
    "isdigit: U+00B2 is not supported": ["{{ '²'.isdigit() }}"],
    "has no attribute 'isnumeric'": ["{{ '½'.isnumeric() }}"],
    "has no attribute 'zfill'": ["{{ '7'.zfill(3) }}"],
    "has no attribute 'ljust'": ["{{ 'a'.ljust(3) ~ '|' }}"],
    "has no attribute 'center'": ["{{ 'ab'.center(5, '*') }}"],
    "has no attribute 'swapcase'": ["{{ 'AbÉ'.swapcase() }}"],
    "has no attribute 'casefold'": ["{{ 'ẞA'.casefold() }}"],
    "has no attribute 'istitle'": ["{{ 'a b'.istitle() }}"],
    "has no attribute 'expandtabs'": ["{{ 'a\\tb'.expandtabs(4) }}"],
    "has no attribute 'encode'": ["{{ 'a'.encode() }}"],
    "has no attribute 'format'": ["{{ '{} {}'.format(1, 'b') }}"],
    "formatting with % is not supported": ["{{ '%s-%d' % ('a', 3) }}", "{{ '%s' % name }}"],
    "access to attribute '__class__'": ["{{ name.__class__ }}"],
    "add | list after it": ["{{ user.items() }}", "{{ user.keys() }}", "{{ user.values() }}", "{{ range(3) }}"],
    "unknown test 'filter'": ["{{ 'trim' is filter }}"],
    "unknown test 'test'": ["{{ 'odd' is test }}"],
    "must be 0 or 2 to 36": ["{{ '5' | int(0, 99) }}"],
    "unknown filter 'slice'": ["{{ [1, 2, 3] | slice(2) | list }}"],
    "unknown filter 'forceescape'": ["{{ '<' | forceescape }}"],
    "unknown filter 'groupby'": ["{{ rows | groupby('role') | list | length }}", "{% for g, items in rows | groupby('role') %}{{ g }}:{{ items | length }};{% endfor %}"],
    "unknown filter 'truncate'": ["{{ 'abc def' | truncate(5) }}"],
    "unknown filter 'center'": ["{{ 'abc' | center(7) ~ '|' }}"],
    "unknown filter 'urlencode'": ["{{ 'a b' | urlencode }}"],
    "unknown filter 'striptags'": ["{{ '<b>x</b> y' | striptags }}"],
    "unknown filter 'wordwrap'": ["{{ 'a b c d' | wordwrap(3) }}"],
    "unknown filter 'filesizeformat'": ["{{ 1000000 | filesizeformat }}"],
    "unknown filter 'format'": ["{{ '%s-%s' | format('a', 'b') }}"],
    "unknown filter 'random'": ["{{ words | random is in words }}"],
    "unknown filter 'pprint'": ["{{ words | pprint }}"],
    "'self' is not supported": ["{{ self }}"],
    "a function cannot be printed": ["{{ namespace }}", "{% macro m(a) %}{% endmacro %}{{ m }}"],
    "expected ']', got ','": ["{{ words[1, 2] }}"],
    "attributes of numbers are not supported": ["{{ 1.5.real }}", "{{ (1).real }}"],
    "expected a value, got '*": ["{{ dict(**user).role }}", "{{ name.upper(*[]) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{'a': 1}) }}{{ m(*[2]) }}"],
    "expected a name, got '('": ["{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}"],
    "has no attribute 'changed'": ["{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}"],
    "recursive loops are not supported": ["{% for i in words recursive %}{{ i }}{% endfor %}"],
    "is not in a loop, or is in a set, filter or macro block": ["{% for i in words %}a{% set t %}b{% break %}{% endset %}c{% endfor %}d", "{% for i in words %}a{% filter upper %}b{% continue %}{% endfilter %}c{% endfor %}d"],
    "add | list after the filter": ["{% set g = words | map('upper') %}{{ g | list }}{{ g | list }}", "{% set g = words | map('upper') %}{{ g | first }}{{ g | join }}"],
    "expected %}, got ':'": ["{% if yes: %}a{% endif %}"],
    "in a macro is not supported: name": ["{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m() }}"],
    "the macro m takes 0 arguments, but 2 were given": ["{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}"],
    "the macro m has no argument a": ["{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(a=1) }}"],
    "unknown block 'call'": ["{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}x{% endcall %}"],
    "attributes of functions are not supported": ["{% macro m(a) %}{% endmacro %}{{ m.name }}", "{% macro m(a) %}{% endmacro %}{{ m.arguments }}"],
    "unknown block 'block'": ["{% block a %}x{% endblock %}"],
    "unknown block 'autoescape'": ["{% autoescape true %}{{ '<' }}{% endautoescape %}"],
    "'joiner' is not supported": ["{{ joiner(',')() }}{{ cycler(1, 2).next() }}"],
    "'lipsum' is not supported": ["{{ lipsum() | length > 5 }}"],
    "Jinja would escape it": ["{{ ('<' | safe) + '<' }}", "{{ ('<' | escape) + '<' }}"],
    "a string marked as safe does not support": ["{{ ('<' | e) | upper }}", "{{ '%s' | safe % '<' }}", "{{ ('a' | safe).replace('a', '<') }}", "{{ ('a,b' | safe).split(',') }}", "{{ ('a' | safe) * 2 }}", "{{ ('a ' | safe) | trim }}", "{{ ('a' | safe).upper() }}"],
}
REFUSED = {template: words for words, templates in REFUSALS.items() for template in templates}


def everything():
    for group, lines in EXPRESSIONS.items():
        for line in lines.strip("\n").split("\n"):
            yield group, "{{ " + line + " }}"
    for group, templates in TEMPLATES.items():
        for template in templates:
            yield group, template


def theirs(template):
    try:
        return {"text": render_jinja_template(conversations=[[]], chat_template=template, **VARIABLES)[0][0]}
    except Exception as error:  # a template may raise any error of Jinja or Python
        return {"error": f"{type(error).__name__}: {error}"}


@pytest.fixture(scope="module")
def ours():
    """Lockstep's rendering of each template, from a single process."""
    variables = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False, **VARIABLES}
    templates = [template for _, template in everything()]
    lines = "".join(json.dumps({"source": template, "variables": variables}) + "\n" for template in templates)
    result = subprocess.run([DRIVER], input=lines, capture_output=True, text=True, check=True)
    return dict(zip(templates, map(json.loads, result.stdout.splitlines())))


@pytest.mark.parametrize("group", [*EXPRESSIONS, *TEMPLATES])
def test_same_text_or_refused(group, ours):
    wrong, rendered = [], 0
    for template in (template for name, template in everything() if name == group):
        mine, other = ours[template], theirs(template)
        if template in REFUSED:
            if "text" not in other or REFUSED[template] not in mine.get("error", ""):
                wrong.append((template, other, mine))
        elif "error" in other:
            if "error" not in mine:
                wrong.append((template, other, mine))
        elif mine.get("text") != other["text"]:
            wrong.append((template, other, mine))
        else:
            rendered += 1
    assert not wrong, "\n".join(f"{template!r}\n  Jinja:    {other}\n  Lockstep: {mine}" for template, other, mine in wrong)
    assert rendered >= 3
