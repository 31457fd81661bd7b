"""Views kept up to date: which rows of a view a batch changes, what Spark gets of them, and what is written back.

There are three kinds, each a class with the methods of `ViewRows`: a joined view and SQL that somebody wrote
(`view_rows.py`), and a chain (`chained.py`). A batch asks each view whether it is touched, hands its rows to Spark, and
replaces the rows of the view by those that come back. Over few rows this happens in memory, over many through files.

An example: `final_ui` is `users` left join `accounts` on `userId`. Stored are (hashes are shortened to two digits)

    users_ui     userId  name    _id  _hash      accounts_ui  userId  balance  _id  _hash
                 a       Ann       0     a7                    a           10    0     a7
                 b       Ben       1     3c

    final_ui     userId  name  balance  _id  _right_id  _hash
                 a       Ann        10    0          0     a7
                 b       Ben              1                3c

A batch brings two accounts: (b, 20) at offset 1 and (b, 30) at offset 2. It touches the key b alone. Spark gets a
number for the key, half of its hash, and ids; of the right rows the newest of each key:

    side_0       key  _id                        side_1       key  _id
                  1e    1                                      1e    2

It runs `narrow_sql` over these, which answers which ids belong together; the store adds the columns to them, and
replaces the rows of `final_ui` whose `_hash` is 3c:

    Spark gives  _id  _right_id                  final_ui     userId  name  balance  _id  _right_id  _hash
                   1          2                               a       Ann        10    0          0     a7
                                                              b       Ben        30    1          2     3c

A chain over `orders -> users -> branches` has no key that all of its rows share, so it finds the touched rows from
join to join (`chained.py`); Spark gets a number for each column that steps join by. A view of somebody's own SQL
hands over all columns of the rows of touched keys, and takes rows back instead of ids.

A joined view could be a chain whose steps have one column. It is not, because it is cheaper: one search of each table
by the hash of the key finds all that a batch concerns, before its rows are stored, and tells join quality too. A chain
asks each table again for each step, in both directions, after they are stored.
"""

from collections.abc import Mapping
from typing import Any

from turnout.plan.tables import ChainView, JoinedView, SqlView, ViewTable
from turnout.store.views.chained import ChainedRows
from turnout.store.views.view_rows import JoinedRows, OwnSqlRows, ViewRows

_KINDS: Mapping[type[ViewTable], type[ViewRows[Any]]] = {
    JoinedView: JoinedRows,
    ChainView: ChainedRows,
    SqlView: OwnSqlRows,
}


def kind_of(view: ViewTable) -> type[ViewRows[Any]]:
    """The class that keeps a view up to date."""
    return _KINDS[type(view)]
