"""The exact JSON text of a field that is not a string where a string is declared.

Spark's parser writes such a value anew: 12.50 becomes 12.5, and space in an object goes. A regular expression that
walks the pairs of the object finds the text as it was sent. It runs only on the few records that need it, and on
bounded ones, since Java's expressions recurse; past that, Spark's own text stands.
"""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

LONGEST_WALKED = 8_192
DEEPEST_WALKED = 6
MOST_PAIRS = 100

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'


def _nested(depth: int) -> str:
    inner = "" if depth == 0 else "|" + _nested(depth - 1)
    return rf'[{{\[](?:[^{{}}\[\]"]++|{_STRING}{inner})*+[}}\]]'


_VALUE = rf'(?:{_STRING}|{_nested(DEEPEST_WALKED)}|[^,{{}}\[\]"\s]++)'
_PAIR = rf"\s*+{_STRING}\s*+:\s*+{_VALUE}\s*+"


def may_differ(parsed: Column) -> Column:
    """Whether Spark may have written `parsed` in another way than it came: a fraction, an exponent, -0, a structure.

    Told from the parsed value alone, and nearly always from its first character: it is asked for every string field.
    """
    first = F.ascii(parsed)
    suspicious = first.between(ord("0"), ord("9")) | first.isin(*(ord(character) for character in '-{["'))
    return F.coalesce(suspicious & parsed.rlike(r'^(?:-?[0-9]+[.]|0$|[{\[]|"Infinity"$|"-Infinity"$)'), F.lit(False))


def exact(text: Column, field: str, parsed: Column) -> Column:
    """The text of `field` as it was sent where it is no JSON string; `parsed`, what Spark read, where it is one."""
    pattern = rf'^\s*+\{{(?:{_PAIR},){{0,{MOST_PAIRS}}}\s*+"{re.escape(field)}"\s*+:\s*+({_VALUE})'
    found = F.regexp_extract(text, pattern, 1)
    walked = F.when((found == "") | found.startswith('"'), parsed).otherwise(found)
    return F.when(may_differ(parsed) & (F.length(text) <= LONGEST_WALKED), walked).otherwise(parsed)
