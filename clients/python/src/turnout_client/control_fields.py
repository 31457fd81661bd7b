"""Names in control messages: the fields of a source and of a view, and the joins."""

JOINS = ("left", "natural", "inner", "right", "full", "semi", "anti")
"""The joins of views; `plan/joins.py` of the server defines what they do."""


def topic_field(source: str) -> str:
    """The field of a message that names the topic of a source."""
    return f"{source}Topic"


def join_field(view: str) -> str:
    """The field of a message that names the join of one view."""
    return f"{view}JoinType"
