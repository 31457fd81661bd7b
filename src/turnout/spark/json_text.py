"""The exact JSON text of a field that is not a string where a string is declared.

Spark's parser writes such a value anew: 12.50 becomes 12.5, and space in an object goes. A regular expression that
walks the pairs of the object finds the text as it was sent. It runs only on the few records that need it, and on
bounded ones, since Java's expressions recurse; past that, Spark's own text stands.
"""

from __future__ import annotations

import re

LONGEST_WALKED = 8_192
DEEPEST_WALKED = 6
MOST_PAIRS = 100

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'


def _nested(depth: int) -> str:
    inner = "" if depth == 0 else "|" + _nested(depth - 1)
    return rf'[{{\[](?:[^{{}}\[\]"]++|{_STRING}{inner})*+[}}\]]'


_VALUE = rf'(?:{_STRING}|{_nested(DEEPEST_WALKED)}|[^,{{}}\[\]"\s]++)'
_PAIR = rf"\s*+{_STRING}\s*+:\s*+{_VALUE}\s*+"


def exact_sql(text: str, field: str, parsed: str) -> str:
    """SQL for the text of `field` as it was sent where it is no JSON string; else for `parsed`, what Spark read.

    Whether Spark may have written it in another way (a fraction, an exponent, -0, a structure) is told from the parsed
    value, and nearly always from its first character alone: it is asked for every string field.
    """
    first = f"ascii({parsed})"
    starts = ", ".join(str(ord(character)) for character in '-{["')
    suspicious = f"{first} BETWEEN {ord('0')} AND {ord('9')} OR {first} IN ({starts})"
    rewritten = f'{parsed} RLIKE r\'^(?:-?[0-9]+[.]|0$|[{{\\[]|"Infinity"$|"-Infinity"$)\''
    walk = _literal(rf'^\s*+\{{(?:{_PAIR},){{0,{MOST_PAIRS}}}\s*+"{re.escape(field)}"\s*+:\s*+({_VALUE})')
    found = f"regexp_extract({text}, {walk}, 1)"
    sent = f"CASE WHEN {found} = '' OR startswith({found}, '\"') THEN {parsed} ELSE {found} END"
    may_differ = f"({suspicious}) AND {rewritten} AND char_length({text}) <= {LONGEST_WALKED}"
    return f"CASE WHEN {may_differ} THEN {sent} ELSE {parsed} END"


def _literal(pattern: str) -> str:
    """A pattern as a raw string of SQL, in which a quote cannot stand."""
    return "r'" + pattern.replace("'", r"\x27") + "'"
