"""The tools that agents have over MCP. Each is a few calls of the HTTP API; the protocol is in `mcp_server.py`.

Answers are small: an agent reads all that it is given.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Protocol

import anyio
from pydantic import Field

from turnout.config import McpAccess
from turnout.errors import TurnoutError
from turnout.plan.joins import Join
from turnout_client.control_fields import join_field, topic_field

MAX_ROWS = 200
BUILD_SECONDS = 45.0
"""How long an agent waits for a candidate: most clients give up after a minute."""
_EXAMPLES = 3

Json = dict[str, Any]
Table = Annotated[str, Field(pattern="^[^/]+$", description="A name of list_tables; NAME@9 is generation 9 of it")]
Where = Annotated[tuple[str, ...], Field(description='Terms that must all hold: "age >= 30", "name icontains an"')]
Sort = Annotated[tuple[str, ...], Field(description='Columns to sort by; "-age" is descending')]
Limit = Annotated[int, Field(ge=0, description=f"At most {MAX_ROWS}; more is cut, and the answer says so")]
Topics = Annotated[Mapping[str, str], Field(description='The topic of each moved source: {"users": "users2"}')]
JoinName = Annotated[str, Field(description=f"The join of all views: {', '.join(Join)}")]
Joins = Annotated[Mapping[str, str], Field(description="The join of single views, by the name of the view")]
StartText = Annotated[
    str, Field(description='"earliest" or "latest" reads all sources again; by default rows are kept')
]

_NONE: Mapping[str, str] = {}


class Ask(Protocol):
    """A call of the HTTP API with the rights of the agent; TurnoutError where it is refused."""

    async def __call__(self, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> Json: ...


class Rights(NamedTuple):
    """What a tool needs: a level of `access.mcp`, and perhaps an operator."""

    level: McpAccess = McpAccess.READ
    operator: bool = False


class AgentTools:
    """The tools: names, descriptions and arguments are those of the methods."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def list_tables(self) -> Json:
        """List the live tables: columns with types, row count, generation. Start here."""
        return await self._ask("/api/tables", {})

    async def describe_table(self, table: Table) -> Json:
        """Describe a table: its columns with types, row count, generation, and some rows as examples."""
        try:
            found = await self._ask(f"/api/tables/{table}/rows", {"limit": _EXAMPLES})
        except TurnoutError as error:
            if error.code != "answer_too_large":
                raise
            found = await self._ask(f"/api/tables/{table}/rows", {"limit": 0})
        examples, total = found.pop("rows"), found.pop("total")
        return {**found, "rows": total, "examples": examples}

    async def read_rows(
        self,
        table: Table,
        where: Where = (),
        columns: Annotated[tuple[str, ...], Field(description="Columns to answer; all by default")] = (),
        sort: Sort = (),
        offset: Annotated[int, Field(ge=0, description="Rows to skip")] = 0,
        limit: Limit = 50,
    ) -> Json:
        """Read rows of a table, of one moment, filtered and sorted by the server."""
        query = {"where": where, "sort": sort, "offset": offset, "limit": min(limit, MAX_ROWS)}
        found = await self._ask(f"/api/tables/{table}/rows", query | ({"columns": columns} if columns else {}))
        after = offset + len(found["rows"])
        return found | _note(len(found["rows"]), found["total"], after < found["total"], f"offset={after}, ")

    async def summarize(
        self,
        table: Table,
        by: Annotated[
            tuple[str, ...], Field(description='Up to three columns; "age:10" makes bins, "ts:1m" of a time')
        ] = (),
        values: Annotated[tuple[str, ...], Field(description='"count", "sum(balance)"; also avg, min, max, p95')] = (
            "count",
        ),
        where: Where = (),
        sort: Sort = (),
        limit: Limit = 50,
    ) -> Json:
        """Group the rows of a table: counts, sums, averages, percentiles. Better than reading many rows."""
        query = {"by": by, "values": values, "where": where, "sort": sort, "limit": min(limit, MAX_ROWS)}
        found = await self._ask(f"/api/tables/{table}/summary", query)
        return found | _note(len(found["groups"]), found["total"], len(found["groups"]) < found["total"])

    async def run_sql(self, sql: str, limit: Limit = 50) -> Json:
        """Run one SELECT in DuckDB's SQL over the tables of list_tables, all of one moment."""
        found = await self._ask("/api/sql", {}, {"sql": sql, "limit": min(limit, MAX_ROWS)})
        return found | _note(len(found["rows"]), "more", not found["complete"])

    async def get_status(self) -> Json:
        """Show what is published: topics, joins, generation, lag, the progress of a build, the candidate."""
        return await self._ask("/api/status", {})

    async def get_history(self, limit: Limit = 10) -> Json:
        """Show the newest swaps, newest first: what changed, who asked, the outcome."""
        return await self._ask("/api/tables/swaps/rows", {"sort": "-ts", "limit": min(limit, MAX_ROWS)})

    async def compare(self, table: Table, where: Where = (), limit: Limit = 20) -> Json:
        """Compare a table as it is published with the candidate: counts, changed columns, rows side by side."""
        found = await self._ask(f"/api/tables/{table}/difference", {"where": where, "limit": min(limit, MAX_ROWS)})
        total = sum(count for change, count in found["counts"].items() if change != "same")
        return found | _note(len(found["rows"]), total, len(found["rows"]) < total)

    async def check_swap(
        self, topics: Topics = _NONE, join: JoinName = "", joins: Joins = _NONE, start: StartText = ""
    ) -> Json:
        """Try a swap without building anything: whether topics exist and fit, what would be read and what kept."""
        return await self._ask("/api/control", {}, {**_change(topics, join, joins, start), "dryRun": True})

    async def propose_swap(
        self, topics: Topics = _NONE, join: JoinName = "", joins: Joins = _NONE, start: StartText = ""
    ) -> Json:
        """Build a swap beside what is published, as a candidate, and compare the two. A person publishes it."""
        answer: Json = {"outcome": None}
        with anyio.move_on_after(BUILD_SECONDS):
            answer = await self._ask("/api/control", {}, {**_change(topics, join, joins, start), "publish": False})
        if answer["outcome"] is None:
            return {**answer, "next": "it is still being built: get_status shows the candidate, then use compare"}
        if answer["outcome"] != "candidate":
            return answer
        quality = await self._ask("/api/tables/join_quality/rows", {"columns": "view", "limit": MAX_ROWS})
        views = dict.fromkeys(str(row["view"]).partition(".")[0] for row in quality["rows"])
        differences = [await self.compare(view, limit=_EXAMPLES) for view in views]
        next_step = "a person reviews and publishes it, on the page or by `turnout publish`"
        return {**answer, "differences": differences, "next": next_step}

    async def publish_candidate(self, generation: int) -> Json:
        """Publish the candidate of this generation: all tables move to it. Ask the person you work for before."""
        return await self._ask("/api/control", {}, {"action": "publish", "expectedGeneration": generation})


RIGHTS = {name: Rights() for name, value in vars(AgentTools).items() if callable(value) and name[0] != "_"} | {
    "check_swap": Rights(operator=True),
    "propose_swap": Rights(McpAccess.PROPOSE, operator=True),
    "publish_candidate": Rights(McpAccess.PUBLISH, operator=True),
}
"""All tools, and what each needs."""


def _change(topics: Mapping[str, str], join: str, joins: Mapping[str, str], start: str) -> Json:
    """The control message of a change. It has no other fields than these, whatever an agent sends."""
    fields = {topic_field(source): topic for source, topic in topics.items()}
    fields |= {join_field(view): name for view, name in joins.items()} | {"joinType": join, "start": start}
    return {name: value for name, value in fields.items() if value}


def _note(given: int, total: int | str, more: bool, how: str = "") -> Json:
    """What to do for the rest, where not all was given."""
    if not more:
        return {}
    return {"note": f"{given} of {total}: at most {MAX_ROWS} are given at once; go on with {how}where, or summarize"}
