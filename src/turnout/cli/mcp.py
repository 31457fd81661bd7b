"""`mcp`: the tools of a running server for an agent, over standard input and output.

What the agent asks is passed to `/mcp` of the server, which has the tools and decides who may use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnout import __version__
from turnout.cli import options
from turnout.cli.app import app, examples
from turnout.errors import needs_extra

if TYPE_CHECKING:
    import mcp_types as protocol

_CONNECT_SECONDS, _ANSWER_SECONDS = 30, 120


@app.command(epilog=examples("turnout mcp", "turnout mcp --url http://turnout.example:10000"))
def mcp(url: options.Url = options.DEFAULT_URL, token: options.Token = "") -> None:
    """Give an agent the tables of a running server, over standard input and output (MCP).

    Agents start it themselves: see docs/how-to/mcp.md.
    """
    from turnout_client.http import Http

    http = Http(url, token or None, "mcp")
    # What is wrong with the address or the token is told before an agent waits for an answer.
    http.post("/mcp", {"jsonrpc": "2.0", "id": 0, "method": "ping"})
    http.close()
    try:
        import anyio
        import mcp  # noqa: F401
    except ModuleNotFoundError as error:
        raise needs_extra("mcp") from error
    anyio.run(_pass_on, f"{http.url}/mcp", http.headers)


async def _pass_on(url: str, headers: Mapping[str, str]) -> None:
    """Answer standard input by the server, until it ends."""
    import httpx2
    import mcp_types as protocol
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_ANSWER_SECONDS)

    async def list_tools(_: object, __: object) -> protocol.ListToolsResult:
        return await there.list_tools()

    async def call_tool(_: object, asked: protocol.CallToolRequestParams) -> protocol.CallToolResult:
        try:
            return await there.call_tool(asked.name, asked.arguments)
        except (MCPError, httpx2.HTTPError) as error:
            text = f"no answer from {url}: {error}\nhint: check that the server runs, and try again"
            return protocol.CallToolResult(content=[protocol.TextContent(type="text", text=text)], is_error=True)

    async with (
        httpx2.AsyncClient(headers=dict(headers), timeout=timeout) as http,
        Client(streamable_http_client(url, http_client=http)) as there,
        stdio_server() as (read, write),
    ):
        given: Any = {"instructions": there.instructions, "on_list_tools": list_tools, "on_call_tool": call_tool}
        server: Server[Any] = Server("turnout", version=__version__, **given)
        await server.run(read, write, server.create_initialization_options())
