"""The errors that Turnout shows to people: what is wrong, and what to do about it.

One class carries code, message, hint and HTTP status; subclasses are for callers that catch them. Programming errors
are not wrapped.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ErrorCode(NamedTuple):
    status: int
    when: str


ERRORS: Mapping[str, ErrorCode] = {
    "bad_where": ErrorCode(400, "a term, column or value of `where` is wrong"),
    "bad_sort": ErrorCode(400, "a column of `sort` is wrong"),
    "bad_columns": ErrorCode(400, "a column of `columns` is wrong"),
    "bad_by": ErrorCode(400, "a column or a bin of `by` is wrong"),
    "bad_values": ErrorCode(400, "a function or a column of `values` is wrong"),
    "too_many_groups": ErrorCode(400, "a summary has too many groups"),
    "bad_parameter": ErrorCode(400, "a value of a parameter is wrong"),
    "unknown_parameter": ErrorCode(400, "a parameter is not known"),
    "answer_too_large": ErrorCode(400, "the rows have more bytes than an answer may"),
    "bad_request": ErrorCode(400, "this is no HTTP request"),
    "bad_view": ErrorCode(400, "the SQL of a view cannot be used"),
    "unauthorized": ErrorCode(401, "no token, or one that is not known"),
    "forbidden": ErrorCode(403, "the sender may not do that: mostly a viewer where an operator is needed"),
    "foreign_origin": ErrorCode(403, "a page of another site sent the request"),
    "foreign_host": ErrorCode(403, "the request came over loopback under a name that is not this machine's"),
    "unknown_table": ErrorCode(404, "no table of that name, or its generation is gone"),
    "unknown_saved": ErrorCode(404, "no saved view of that name"),
    "not_found": ErrorCode(404, "the path is wrong"),
    "request_timeout": ErrorCode(408, "the body took too long"),
    "generation_conflict": ErrorCode(409, "`expectedGeneration` is not the published generation"),
    "message_too_large": ErrorCode(413, "a body that is too large"),
    "url_too_long": ErrorCode(414, "an address that is too long"),
    "unsupported_media_type": ErrorCode(415, "a body that is not sent as JSON"),
    "bad_body": ErrorCode(422, "a body that is not of its shape"),
    "too_many_saved": ErrorCode(422, "as many views are saved as may be"),
    "sql_refused": ErrorCode(422, "not one SELECT over published tables, or one that fails"),
    "bad_control": ErrorCode(422, "a control message that is wrong"),
    "unknown_topic": ErrorCode(422, "a topic that does not exist"),
    "not_authorized": ErrorCode(422, "a topic that may not be read"),
    "bad_sample": ErrorCode(422, "the newest records of a topic do not fit its source"),
    "bad_example": ErrorCode(422, "a topic that says nothing about columns, or that no source may read"),
    "nothing_to_roll_back": ErrorCode(422, "there is no previous plan"),
    "too_many_requests": ErrorCode(429, "this client asks too often; `Retry-After` has the seconds to wait"),
    "too_much_unread": ErrorCode(429, "this client has not read what it asked for before"),
    "headers_too_large": ErrorCode(431, "headers that are too large"),
    "internal_error": ErrorCode(500, "a fault of the server; its log has the details"),
    "bad_config": ErrorCode(500, "the Kafka client does not take its settings"),
    "build_failed": ErrorCode(502, "the swap failed; the published generation goes on"),
    "kafka_unreachable": ErrorCode(503, "Kafka is away"),
    "registry_unreachable": ErrorCode(503, "the schema registry is away"),
    "registry_refused": ErrorCode(503, "the schema registry refuses the request"),
    "closed": ErrorCode(503, "Turnout is stopping"),
    "starting": ErrorCode(503, "the server has just started"),
    "building": ErrorCode(503, "no generation is published yet"),
    "spark_gone": ErrorCode(503, "Spark ended and is started again"),
    "not_reading": ErrorCode(503, "the topics cannot be read"),
    "control_not_read": ErrorCode(503, "control messages do not come or cannot be kept"),
    "failing": ErrorCode(503, "a step of the orchestrator fails"),
    "page_not_built": ErrorCode(503, "a source tree without `make setup`"),
    "too_many_connections": ErrorCode(503, "all connections are in use"),
    "store_unavailable": ErrorCode(503, "the store's disk is full or failing, or the store is closing"),
    "query_timeout": ErrorCode(503, "the read took longer than `server.query_timeout_seconds` and was ended"),
    "build_timeout": ErrorCode(504, "the swap did not catch up in time; the published generation goes on"),
}
"""The errors of HTTP calls, each with its one status."""


class TurnoutError(Exception):
    """A failure with a text for people and a code for programs."""

    def __init__(self, code: str, message: str, hint: str = "", *, status: int | None = None) -> None:
        """`status` is for codes that are not in `ERRORS`, or mean something else there; 400 unless given."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        known = ERRORS.get(code)
        self.status = status or (known.status if known else 400)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def as_json(self) -> dict[str, dict[str, str]]:
        """The one JSON shape of every error."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}


class ConfigError(TurnoutError):
    """Every fault of one configuration, each as `place: what is wrong; what to do`."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("bad_config", "\n".join(self.faults), status=400)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for logs and messages."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
