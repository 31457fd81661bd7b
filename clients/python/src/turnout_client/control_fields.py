"""Names in control messages: the fields for a source and for a view, and the joins."""

JOINS = ("left", "natural", "inner", "right", "full", "semi", "anti")
"""The names of the joins; `plan/joins.py` of the server defines their meaning."""


def topic_field(source: str) -> str:
    """Return the message field for the topic of a source."""
    return f"{source}Topic"


def join_field(view: str) -> str:
    """Return the message field for the join of a view."""
    return f"{view}JoinType"
