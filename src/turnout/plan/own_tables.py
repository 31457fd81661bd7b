"""The names of Turnout's own tables: the only list of them. No source and no view can have one of these names."""

SHOWN_OF_STORE = ("orchestrator_status", "orchestrator_logs", "control_raw", "swaps")
"""Shown under these names, and the same for all generations."""

SHOWN_OF_GENERATION = ("bad_records", "join_quality")
"""Published together with the tables of the configuration."""

BOOKS_OF_STORE = (
    "store",
    "published",
    "counter",
    "versions",
    "generations",
    "config_history",
    "control_places",
    "removed_rows",
    "saved_views",
)
BOOKS_OF_GENERATION = ("versions", "progress", "hashing", "lives", "outgoing", "left_out")
"""For Turnout alone."""

RESERVED = tuple(dict.fromkeys((*SHOWN_OF_STORE, *SHOWN_OF_GENERATION, *BOOKS_OF_STORE, *BOOKS_OF_GENERATION)))
