"""The settings of the server: where it listens, how much of it one client may have, and who may connect."""

from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from turnout.config.auth import url
from turnout.config.config_errors import Faults, SettingPath
from turnout.config.values import (
    Located,
    MemorySize,
    Names,
    Network,
    NonEmpty,
    Origin,
    Seconds,
    Section,
    Whole,
    is_loopback,
)


class Role(StrEnum):
    """What a token may do: look, or also swap."""

    VIEWER = "viewer"
    OPERATOR = "operator"


class ServerSettings(Section):
    """The address for viewers, how many may connect, and how much of the server one client may have."""

    host: NonEmpty = "127.0.0.1"
    """The address to listen on; any but loopback needs `access`, or `--insecure`."""
    port: Whole = Field(10000, ge=0, le=65535)
    """The port; `0` takes any free one."""
    allowed_origins: tuple[Origin, ...] = ()
    """Other sites whose pages may read, subscribe and swap: `[https://app.example]`; see docs/how-to/access.md."""
    embed_origins: tuple[Origin, ...] = ()
    """Other sites whose pages may show a table or a chart in a frame (`/?embed=1`); see docs/how-to/page.md."""
    trusted_proxies: tuple[Network, ...] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For` is believed, such as `[127.0.0.1]`; from all others it
    is ignored."""
    max_connections: Whole = Field(1000, ge=1)
    """Open sockets in all; further ones are refused, except probes."""
    max_connections_per_client: Whole = Field(500, ge=1)
    """Open sockets of one address that is not a trusted proxy."""
    max_viewers: Whole = Field(500, ge=1)
    """Live connections (WebSockets) in all."""
    max_viewers_per_client: Whole = Field(100, ge=1)
    """Live connections of one client: a token, or an address where there are no tokens."""
    max_subscriptions_per_client: Whole = Field(1000, ge=1)
    """Subscriptions on all live connections of one client."""
    max_reads: Whole = Field(16, ge=1)
    """Reads of tables at once: answers, files, live windows, snapshots."""
    max_reads_per_client: Whole = Field(4, ge=1)
    """Reads at once for one client; a client that has read for long gets one at a time, with pauses."""
    query_timeout_seconds: Seconds = Field(30.0, gt=0)
    """A read that takes longer is ended, with the error `query_timeout`; so is a SELECT that waits longer to
    begin. The wait does not count as time of the read."""
    max_answer_megabytes: Whole = Field(64, ge=1)
    """Size of one JSON answer or one live window; files may be of any size."""
    sql_memory_limit: MemorySize = "512MB"
    """Memory of one SELECT that somebody sends (`POST /api/sql`); one that needs more is refused."""
    max_held_megabytes_per_client: Whole = Field(512, ge=1)
    """Memory for one client: answers and snapshots that it has not read, and the rows of its live windows; a quarter
    more for changes of tables."""
    max_download_megabytes_per_client: Whole = Field(4096, ge=1)
    """Temporary files of downloads (CSV, Arrow, Parquet) that one client has not read yet."""

    @model_validator(mode="after")
    def _viewers_fit(self) -> Self:
        if self.max_viewers > self.max_connections:
            shown = f"max_viewers is {self.max_viewers}, more than max_connections ({self.max_connections})"
            raise ValueError(f"{shown}; raise the one or lower the other")
        return self


class TokenSettings(Section):
    """One token, here or in a file, and what its bearer may do."""

    name: NonEmpty
    """The name of its owner, shown as `requester` in the history; not `topic` or `configuration`."""
    role: Role
    """`viewer` reads, `operator` also swaps and applies; see docs/how-to/access.md#who-may-do-what."""
    token: SecretStr | None = None
    """The token, as `"${NAME}"`: 16 to 512 visible ASCII characters."""
    token_file: Located | None = None
    """Instead of `token`: a file that has it, read at the start."""


class RoleSettings(Section):
    """The people of an identity provider who may connect, by one claim of their tokens."""

    claim: NonEmpty = "groups"
    """The claim with the roles: text or a list of texts; `realm_access.roles` is a nested claim."""
    operator: Names = ()
    """The values of the claim that make somebody an operator."""
    viewer: Names = ()
    """The values of the claim that make somebody a viewer, unless they are an operator."""


class OidcSettings(Section):
    """The OpenID provider by which people sign in, and whose bearer tokens are taken."""

    issuer: Annotated[str, url("https://login.example.com/realms/main", "client_id and client_secret")]
    """The issuer's URL, as its tokens and its discovery document write it; `https`, or `http` on this machine."""
    client_id: NonEmpty
    """The client id of this server at the issuer; it must be the audience of tokens."""
    client_secret: SecretStr
    """Its secret, such as `"${NAME}"` or `{file: PATH}`."""
    roles: RoleSettings
    """Who is an operator and who a viewer; anybody else is refused."""
    scope: NonEmpty = "openid profile email"
    """The scopes to request at a sign-in; add `offline_access` or `groups` where the issuer needs them."""
    audience: Names = ()
    """Further audiences that bearer tokens may be for, such as `api://turnout`; `client_id` always is one."""
    ca_file: Located | None = None
    """PEM file of the authority that signed the issuer's certificate; without it, the system's."""


class SqlAccess(StrEnum):
    """The roles that may send SELECTs of their own."""

    OPERATOR = "operator"
    VIEWER = "viewer"
    OFF = "off"


class ApplyAccess(StrEnum):
    """The changes of the configuration that a sender may ask for."""

    OFF = "off"
    TABLES = "tables"
    ALL = "all"


class McpAccess(StrEnum):
    """What agents may do over MCP, each level with those before it."""

    OFF = "off"
    READ = "read"
    PROPOSE = "propose"
    PUBLISH = "publish"


# YAML reads a bare `off` as false.
_off = BeforeValidator(lambda given: "off" if given is False else given)


class AccessSettings(Section):
    """The tokens of those who may connect, how others sign in, and what they may do."""

    tokens: tuple[TokenSettings, ...] = ()
    """The tokens, as a list."""
    oidc: OidcSettings | None = None
    """The OpenID provider by which people sign in; see docs/how-to/login.md."""
    sql: Annotated[SqlAccess, _off] = SqlAccess.OPERATOR
    """Who may run SELECTs: only an `operator`, a `viewer` too, or nobody (`off`). Without `access`, everybody on this
    machine may; see docs/how-to/ask.md."""
    apply: Annotated[ApplyAccess, _off] = ApplyAccess.TABLES
    """What operators may change by `turnout apply`: `tables` (sources, columns, views by joins, sinks, alerts, limits),
    `all` (also `sql` of views, webhooks of alerts, and `control.topics`), or nothing (`off`); see
    docs/how-to/access.md#who-may-do-what."""
    mcp: Annotated[McpAccess, _off] = McpAccess.PROPOSE
    """What agents may do over MCP: nothing (`off`), `read`, `propose` (an operator's token builds candidates, which a
    person publishes), or `publish`; see docs/how-to/mcp.md."""


def is_protected(address: str) -> bool:
    """Whether nobody on the way to an address can read or change what is sent: by TLS, or on this machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def oidc_faults(path: SettingPath, oidc: OidcSettings) -> Faults:
    if not is_protected(oidc.issuer):
        risk = "others on the network could forge sign-ins"
        yield (*path, "issuer"), f"must be https, or {risk}; use http on loopback only"
    if urlsplit(oidc.issuer).query or urlsplit(oidc.issuer).fragment:
        yield (*path, "issuer"), "must have no ? and no #; write it as the issuer's discovery document does"
    if oidc.ca_file is not None and not oidc.issuer.startswith("https:"):
        yield (*path, "ca_file"), "has no effect with an issuer of http:; use https: or remove it"
    if not oidc.roles.operator and not oidc.roles.viewer:
        yield (*path, "roles"), "gives nobody a role, so nobody could sign in; add operator or viewer"
    if "openid" not in oidc.scope.split():
        yield (*path, "scope"), "has no openid, without which the issuer does not say who signs in; add it"
