"""The errors that users and programs see: the fault, and what to do about it.

One class has code, message, hint and HTTP status; a subclass exists only if a caller catches it. `ERRORS` lists the
codes of the server; their status tells a client whether to try again. Programming errors are not wrapped.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class ErrorCode(NamedTuple):
    status: int
    when: str
    remedy: str


ERRORS: Mapping[str, ErrorCode] = {
    "bad_where": ErrorCode(400, "a term, column or value of `where` is wrong", "correct it; the hint lists valid ones"),
    "bad_sort": ErrorCode(400, "a column of `sort` is wrong", "use a column from the hint"),
    "bad_columns": ErrorCode(400, "a column of `columns` is wrong", "use columns from the hint"),
    "bad_by": ErrorCode(400, "a column or a bin of `by` is wrong", "correct it; the hint lists valid ones"),
    "bad_values": ErrorCode(
        400, "a function or a column of `values` is wrong", "correct it; the hint lists valid ones"
    ),
    "too_many_groups": ErrorCode(400, "a summary has more than 100,000 groups", "use wider bins, or fewer columns"),
    "bad_parameter": ErrorCode(400, "a value of a parameter is wrong", "correct it; the hint has an example"),
    "unknown_parameter": ErrorCode(400, "a parameter is not known", "correct its name; the hint has the names"),
    "answer_too_large": ErrorCode(
        400,
        "the rows of a JSON answer or a live window are larger than `server.max_answer_megabytes`",
        "request fewer rows or columns, or a file (`format=arrow`), which may have any size",
    ),
    "bad_request": ErrorCode(400, "this is not an HTTP request", "check what the program or proxy sends"),
    "bad_handshake": ErrorCode(
        400, "this is not the handshake of a WebSocket", "configure the proxy to forward WebSocket headers"
    ),
    "bad_view": ErrorCode(400, "the SQL of a view cannot be used", "correct it; the message has the reason"),
    "unauthorized": ErrorCode(
        401,
        "there is no token and no session, or the token is unknown, expired or for another server",
        "send a token of `access.tokens`, or a new token of the issuer, as a bearer token; people sign in on the page",
    ),
    "sign_in_failed": ErrorCode(
        401, "a sign-in was refused, began in another browser, or took too long", "begin it again from the page"
    ),
    "forbidden": ErrorCode(
        403,
        "the sender is not allowed to do this: `access.oidc.roles` gives it no role, the call needs an operator, "
        "`access.sql`, `access.mcp` or `access.apply` forbids it, or an apply comes from another user than the "
        "server's",
        "use the token of an operator; docs/how-to/access.md lists all permissions",
    ),
    "foreign_origin": ErrorCode(
        403,
        "a page of another site sent the request, or read data of a server without tokens",
        "add the site to `server.allowed_origins`",
    ),
    "foreign_host": ErrorCode(
        403,
        "the request came over loopback with a host name that is not this machine's",
        "use localhost, or add the site to `server.allowed_origins`",
    ),
    "unknown_table": ErrorCode(404, "no table has this name, or its generation is gone", "use a name from the hint"),
    "unknown_generation": ErrorCode(404, "the generation is gone, or never existed", "use a number from the hint"),
    "unknown_row": ErrorCode(404, "no row has this id or key now", "read the table again: it may have changed"),
    "unknown_saved": ErrorCode(404, "no saved view has this name", "`GET /api/saved` lists the names"),
    "unknown_alert": ErrorCode(404, "no alert has this name", "use a name from the hint"),
    "not_found": ErrorCode(404, "the path is wrong", "docs/reference/http.md lists the calls"),
    "method_not_allowed": ErrorCode(405, "the method is wrong", "use a method from the header `Allow`"),
    "request_timeout": ErrorCode(408, "the body took longer than 30 s", "send it faster"),
    "generation_conflict": ErrorCode(
        409,
        "`expectedGeneration` is not the published generation, or, for publish and discard, not the candidate's",
        "check the current state, and decide again",
    ),
    "nothing_to_cancel": ErrorCode(409, "no build is running, or it is the first build", "read the status again"),
    "guard_broken": ErrorCode(
        409,
        "the new generation breaks one of `swap.guards`; the published generation stays published",
        "check the numbers in the message; `force` ignores the guards",
    ),
    "no_candidate": ErrorCode(
        409,
        "there is no candidate to compare, publish or discard",
        'send a change with `"publish": false` to build one',
    ),
    "message_too_large": ErrorCode(
        413, "the body is larger than 256 KiB; SQL may have 512 KiB, a saved view 16 KiB", "send less"
    ),
    "url_too_long": ErrorCode(414, "the address has more than 8,000 bytes", "shorten it, or use `POST /api/sql`"),
    "unsupported_media_type": ErrorCode(
        415, "the body is not sent as JSON, or the file is not sent as YAML", "set `Content-Type`"
    ),
    "bad_body": ErrorCode(422, "the body is invalid", "correct the field that the message names"),
    "too_many_saved": ErrorCode(422, "200 views are saved, which is the maximum", "remove a view that nobody needs"),
    "sql_refused": ErrorCode(
        422,
        "the text is not one SELECT over published tables, or DuckDB cannot run it",
        "the message has the reason; docs/reference/http.md#sql lists what is allowed",
    ),
    "bad_control": ErrorCode(422, "a control message is wrong", "docs/reference/control.md describes its fields"),
    "unknown_topic": ErrorCode(422, "a topic does not exist", "create it, or name another"),
    "not_authorized": ErrorCode(422, "Turnout may not read a topic", "grant its Kafka identity the right to read it"),
    "bad_sample": ErrorCode(
        422, "the newest records of a topic do not match its source", "name another topic, or declare other columns"
    ),
    "bad_example": ErrorCode(
        422,
        "no columns can be derived from the records of a topic, or no source may read it",
        "docs/how-to/by-example.md lists the usable formats; name another topic",
    ),
    "config_invalid": ErrorCode(422, "the configuration has errors", "correct them; the message has one line for each"),
    "restart_needed": ErrorCode(
        422,
        "the configuration changes settings that need a restart; nothing of it was applied",
        "do not change these settings, or restart with the changed file",
    ),
    "nothing_to_roll_back": ErrorCode(422, "there is no previous plan", "send the wanted plan as a control message"),
    "too_many_requests": ErrorCode(429, "this client sends too many requests", "wait the seconds of `Retry-After`"),
    "too_much_unread": ErrorCode(
        429,
        "this client has too many unread answers (`server.max_held_megabytes_per_client`, "
        "`server.max_download_megabytes_per_client`)",
        "read its open answers, or close them",
    ),
    "headers_too_large": ErrorCode(431, "the headers have more than 16,000 bytes", "send fewer, such as cookies"),
    "internal_error": ErrorCode(500, "the server has a bug", "report it; the server's log has the details"),
    "bad_config": ErrorCode(500, "the Kafka client refuses its settings", "run `turnout check`, which names them"),
    "build_failed": ErrorCode(
        502, "the swap failed; the published generation stays published", "the message has the reason"
    ),
    "alert_not_delivered": ErrorCode(
        502,
        "the target of an alert did not accept a sample",
        "the message has the reason; docs/how-to/alerts.md describes what a target must do",
    ),
    "kafka_unreachable": ErrorCode(
        503, "Kafka cannot be reached", "run `turnout check` for the reason; Turnout tries again"
    ),
    "issuer_unreachable": ErrorCode(
        503,
        "the identity provider cannot be reached, or does not match `access.oidc`",
        "run `turnout check` for the reason",
    ),
    "registry_unreachable": ErrorCode(
        503, "the schema registry cannot be reached", "check `schema_registry.url`, and that it runs"
    ),
    "registry_refused": ErrorCode(503, "the schema registry refuses the request", "check `schema_registry.auth`"),
    "closed": ErrorCode(503, "Turnout is stopping", "connect again"),
    "starting": ErrorCode(503, "the server has just started", "try again in a few seconds"),
    "building": ErrorCode(503, "no generation is published yet", "wait; the message has the progress"),
    "spark_gone": ErrorCode(503, "Spark ended and is restarting", "wait; until then the tables do not change"),
    "not_reading": ErrorCode(503, "the topics cannot be read", "fix what the message names; Turnout tries again"),
    "control_not_read": ErrorCode(
        503, "control messages do not arrive or cannot be stored", "fix what the message names; Turnout tries again"
    ),
    "failing": ErrorCode(503, "a step of the orchestrator fails", "fix what the message names; Turnout tries again"),
    "page_not_built": ErrorCode(503, "the web page is not built in this source tree", "run `make setup`"),
    "too_many_connections": ErrorCode(
        503,
        "`server.max_connections`, or the share of one client, is reached",
        "close some connections, or raise the setting",
    ),
    "too_many_viewers": ErrorCode(
        503, "`server.max_viewers`, or the share of one client, is reached", "close some, or raise the setting"
    ),
    "store_unavailable": ErrorCode(
        503,
        "the store's disk is full or failing, or the store is closing",
        "check that the disk of `data_dir` has room",
    ),
    "query_timeout": ErrorCode(
        503,
        "the query ran longer than `server.query_timeout_seconds`, or waited as long to start",
        "request less, or raise the setting",
    ),
    "build_timeout": ErrorCode(
        504,
        "the swap did not catch up in time; the published generation stays published",
        "raise `swap.catch_up_timeout_seconds`, or choose a later `start`",
    ),
}
"""The errors of HTTP calls, by their codes; `make reference` writes them to docs/reference/errors.md."""

CLIENT_HINTS: Mapping[str, str] = {
    "server_unreachable": "start a server (turnout run, turnout demo), or give its address: connect(url)",
    "bad_token": "check the token: connect(url, token)",
    "unauthorized": "give a token of the server: connect(url, token)",
}
"""Hints for Python programs, which replace the server's hints for HTTP; the command line has others."""


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
        """Store the parts of an error.

        `status` overrides the status in `ERRORS`; it is 400 for a code that is not listed there. `position` is the line
        and the column of an error in a SELECT, counted from 1.
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
        """Return the error as JSON, in the format of every answer."""
        shape: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.position is not None:
            shape["position"] = {"line": self.position[0], "column": self.position[1]}
        return {"error": shape}


def needs_extra(extra: str, package: str = "turnout") -> TurnoutError:
    """Return the error of a feature whose optional packages are not installed."""
    message = f"the packages for {extra} are not installed where this runs"
    return TurnoutError("missing_package", message, f"pip install '{package}[{extra}]' there", status=501)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, for logs and messages."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
