"""The errors that people and programs get: what is wrong, and what to do about it.

One class carries code, message, hint and HTTP status; subclasses are for callers that catch them. `ERRORS` has the
codes that a server answers: by their status a client knows what passes by itself. Programming errors are not wrapped.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class ErrorCode(NamedTuple):
    status: int
    when: str
    remedy: str


ERRORS: Mapping[str, ErrorCode] = {
    "bad_where": ErrorCode(
        400, "a term, column or value of `where` is wrong", "correct it; the hint has what is known"
    ),
    "bad_sort": ErrorCode(400, "a column of `sort` is wrong", "name one of those in the hint"),
    "bad_columns": ErrorCode(400, "a column of `columns` is wrong", "name some of those in the hint"),
    "bad_by": ErrorCode(400, "a column or a bin of `by` is wrong", "correct it; the hint has what is known"),
    "bad_values": ErrorCode(
        400, "a function or a column of `values` is wrong", "correct it; the hint has what is known"
    ),
    "too_many_groups": ErrorCode(400, "a summary has more than 100,000 groups", "use wider bins, or fewer columns"),
    "bad_parameter": ErrorCode(400, "a value of a parameter is wrong", "correct it; the hint has an example"),
    "unknown_parameter": ErrorCode(400, "a parameter is not known", "correct its name; the hint has the names"),
    "answer_too_large": ErrorCode(
        400,
        "the rows of a JSON answer or a live window have more bytes than `server.max_answer_megabytes`",
        "ask for fewer rows or columns, or for a file (`format=arrow`), which may have any size",
    ),
    "bad_request": ErrorCode(400, "this is not an HTTP request", "check what a program or a proxy sends"),
    "bad_handshake": ErrorCode(
        400, "this is not the handshake of a WebSocket", "let the proxy in front pass its headers on"
    ),
    "bad_view": ErrorCode(400, "the SQL of a view cannot be used", "correct it; the message has the reason"),
    "unauthorized": ErrorCode(
        401,
        "no token and no session, or a token that is not known, has expired or is for another server",
        "send one of `access.tokens`, or a new one of the issuer, as a bearer token; people sign in",
    ),
    "sign_in_failed": ErrorCode(
        401, "a sign-in was refused, was begun elsewhere, or took too long", "begin it again from the page"
    ),
    "forbidden": ErrorCode(
        403,
        "the sender may not do that: no role by `access.oidc.roles`, a viewer where an operator is needed, SQL against "
        "`access.sql`, an agent against `access.mcp`, an apply against `access.apply`, or one by another user than the "
        "server's",
        "use the token of an operator; docs/how-to/access.md says who may do what",
    ),
    "foreign_origin": ErrorCode(
        403,
        "a page of another site sent the request, or read something where there are no tokens",
        "add the site to `server.allowed_origins`",
    ),
    "foreign_host": ErrorCode(
        403,
        "the request came over loopback under a name that is not this machine's",
        "use localhost, or add the site to `server.allowed_origins`",
    ),
    "unknown_table": ErrorCode(404, "no table of that name, or its generation is gone", "use a name from the hint"),
    "unknown_generation": ErrorCode(
        404, "a generation that is gone, or never existed", "name one of those in the hint"
    ),
    "unknown_row": ErrorCode(404, "no row has that id or key now", "read the table again: it may have changed"),
    "unknown_saved": ErrorCode(404, "no saved view of that name", "`GET /api/saved` lists them"),
    "unknown_alert": ErrorCode(404, "no alert of that name", "use a name from the hint"),
    "not_found": ErrorCode(404, "the path is wrong", "docs/reference/http.md lists the calls"),
    "method_not_allowed": ErrorCode(405, "the method is wrong", "use one of the header `Allow`"),
    "request_timeout": ErrorCode(408, "the body took longer than 30 s", "send it faster"),
    "generation_conflict": ErrorCode(
        409,
        "`expectedGeneration` is not the published generation, or, to publish or discard, not the candidate's",
        "check the current state, and decide again",
    ),
    "nothing_to_cancel": ErrorCode(409, "no build is under way, or it is the first one", "read the status again"),
    "guard_broken": ErrorCode(
        409,
        "what was built breaks one of `swap.guards`; the published generation stays published",
        "check the figures in the message; `force` ignores the guards",
    ),
    "no_candidate": ErrorCode(
        409, "there is no candidate to compare, publish or discard", 'make one by a change with `"publish": false`'
    ),
    "message_too_large": ErrorCode(
        413, "a control message of more than 256 KiB, or another body of more than 512 KiB", "send less"
    ),
    "url_too_long": ErrorCode(414, "an address of more than 8,000 bytes", "ask for less, or by `POST /api/sql`"),
    "unsupported_media_type": ErrorCode(
        415, "a body that is not sent as JSON, or a file that is not sent as YAML", "set `Content-Type`"
    ),
    "bad_body": ErrorCode(422, "a body that is not of its shape", "correct the field that the message names"),
    "too_many_saved": ErrorCode(422, "200 views are saved, which is the most", "remove one that nobody needs"),
    "sql_refused": ErrorCode(
        422,
        "not one SELECT over published tables, or one that DuckDB cannot run",
        "the message says why, docs/reference/http.md#sql says what is allowed",
    ),
    "bad_control": ErrorCode(422, "a control message that is wrong", "docs/reference/control.md has its fields"),
    "unknown_topic": ErrorCode(422, "a topic that does not exist", "create it, or name another"),
    "not_authorized": ErrorCode(
        422, "a topic that may not be read", "give Turnout's Kafka identity the right to read it"
    ),
    "bad_sample": ErrorCode(
        422, "the newest records of a topic do not fit its source", "name another topic, or declare other columns"
    ),
    "bad_example": ErrorCode(
        422,
        "a topic whose records say nothing about columns, or that no source may read",
        "docs/how-to/by-example.md has what is looked for; name another topic",
    ),
    "config_invalid": ErrorCode(
        422, "a configuration that has faults", "correct them; the message has all of them, a line each"
    ),
    "restart_needed": ErrorCode(
        422,
        "a configuration that changes what needs a restart; nothing of it was applied",
        "leave that as it is, or restart with the changed file",
    ),
    "nothing_to_roll_back": ErrorCode(422, "there is no previous plan", "send the plan that you want as a message"),
    "too_many_requests": ErrorCode(429, "this client asks too often", "wait as many seconds as `Retry-After` says"),
    "too_much_unread": ErrorCode(
        429,
        "this client has not read what it asked for before (`server.max_held_megabytes_per_client`, "
        "`server.max_download_megabytes_per_client`)",
        "read the answers that are open, or close them",
    ),
    "headers_too_large": ErrorCode(431, "headers of more than 16,000 bytes", "send fewer, such as cookies"),
    "internal_error": ErrorCode(500, "a fault of the server", "its log has the details; report it"),
    "bad_config": ErrorCode(500, "the Kafka client refuses its settings", "`turnout check` says which"),
    "build_failed": ErrorCode(
        502, "the swap failed; the published generation stays published", "the message has the reason"
    ),
    "alert_not_delivered": ErrorCode(
        502,
        "the target of an alert did not accept a sample",
        "the message says why; docs/how-to/alerts.md says what a target must do",
    ),
    "kafka_unreachable": ErrorCode(
        503, "Kafka cannot be reached", "`turnout check` says what is wrong; it is tried again"
    ),
    "issuer_unreachable": ErrorCode(
        503,
        "the identity provider cannot be reached, or is not as `access.oidc` says",
        "`turnout check` says what is wrong",
    ),
    "registry_unreachable": ErrorCode(
        503, "the schema registry cannot be reached", "check `schema_registry.url`, and that it runs"
    ),
    "registry_refused": ErrorCode(503, "the schema registry refuses the request", "check `schema_registry.auth`"),
    "closed": ErrorCode(503, "Turnout is stopping", "connect again"),
    "starting": ErrorCode(503, "the server has just started", "try again in some seconds"),
    "building": ErrorCode(503, "no generation is published yet", "wait; the message has the progress"),
    "spark_gone": ErrorCode(503, "Spark ended and is started again", "wait; the tables stay as they are until then"),
    "not_reading": ErrorCode(503, "the topics cannot be read", "fix what the message names; it is tried again"),
    "control_not_read": ErrorCode(
        503, "control messages do not arrive or cannot be stored", "fix what the message names; it is tried again"
    ),
    "failing": ErrorCode(503, "a step of the orchestrator fails", "fix what the message names; it is tried again"),
    "page_not_built": ErrorCode(503, "a source tree without its web page", "`make setup` builds it"),
    "too_many_connections": ErrorCode(
        503,
        "`server.max_connections`, or what one client may have of them, is reached",
        "close some, or raise the setting",
    ),
    "too_many_viewers": ErrorCode(
        503, "`server.max_viewers`, or what one client may have of them, is reached", "close some, or raise the setting"
    ),
    "store_unavailable": ErrorCode(
        503,
        "the store's disk is full or failing, or the store is closing",
        "check that the disk of `data_dir` has room",
    ),
    "query_timeout": ErrorCode(
        503,
        "the read took longer than `server.query_timeout_seconds` and was ended, or waited as long for a place",
        "ask for less, or raise the setting",
    ),
    "build_timeout": ErrorCode(
        504,
        "the swap did not catch up in time; the published generation stays published",
        "raise `swap.catch_up_timeout_seconds`, or start later in the topics",
    ),
}
"""The errors of HTTP calls, each with its one status; `make reference` writes them to docs/reference/errors.md."""

CLIENT_HINTS: Mapping[str, str] = {
    "server_unreachable": "start a server (turnout run, turnout demo), or give its address: connect(url)",
    "bad_token": "check the token: connect(url, token)",
    "unauthorized": "give a token of the server: connect(url, token)",
}
"""What to do in Python, where the server's words are for HTTP; the command line has words of its own."""


class TurnoutError(Exception):
    """A failure with a text for people and a code for programs."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        *,
        status: int | None = None,
        position: tuple[int, int] | None = None,
    ) -> None:
        """`status` is for codes that are not in `ERRORS`, or mean something else there; 400 unless given.

        `position` is the line and the column, from 1, of what is wrong in a SELECT.
        """
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.position = position
        known = ERRORS.get(code)
        self.status = status or (known.status if known else 400)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def as_json(self) -> dict[str, dict[str, Any]]:
        """The one JSON shape of every error."""
        shape: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.position is not None:
            shape["position"] = {"line": self.position[0], "column": self.position[1]}
        return {"error": shape}


def needs_extra(extra: str, package: str = "turnout") -> TurnoutError:
    """The error of a feature whose optional packages are not installed."""
    message = f"the packages for {extra} are not installed where this runs"
    return TurnoutError("missing_package", message, f"pip install '{package}[{extra}]' there", status=501)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for logs and messages."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
