"""The exact JSON text of a field that is not a string where a string is declared.

Spark's parser writes such a value anew: 12.50 becomes 12.5, and space in an object goes. A regular expression that
walks the pairs of the object finds the text as it was sent. It runs only on the few records that need it, and on
bounded ones, since Java's expressions recurse; past that, Spark's own text stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def may_differ(text: Column, fields: Sequence[str]) -> Column:
    """Whether one of `fields` may hold what Spark writes in another way: a fraction, an exponent, -0, a structure."""
    names = "|".join(re.escape(field) for field in fields)
    pattern = rf'"(?:{names})"\s*:\s*(?:-?[0-9]+[.eE]|-0|[{{\[])'
    return (F.length(text) <= LONGEST_WALKED) & text.rlike(pattern)


def exact(text: Column, field: str, parsed: Column) -> Column:
    """The text of `field` as it was sent where it is no JSON string; `parsed` where it is one."""
    pattern = rf'^\s*+\{{(?:{_PAIR},){{0,{MOST_PAIRS}}}\s*+"{re.escape(field)}"\s*+:\s*+({_VALUE})'
    found = F.regexp_extract(text, pattern, 1)
    return F.when((found == "") | found.startswith('"') | parsed.isNull(), parsed).otherwise(found)
