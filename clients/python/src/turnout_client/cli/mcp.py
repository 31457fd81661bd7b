"""The command `mcp`: an MCP server over standard input and output for an agent.

It forwards each request to `/mcp` of a running server, which defines the tools and checks permissions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnout_client import __version__
from turnout_client.cli import options
from turnout_client.cli.app import app, examples
from turnout_client.cli.program import PROGRAM
from turnout_client.errors import TurnoutError, needs_extra

if TYPE_CHECKING:
    from turnout_client.http import Http


@app.command(epilog=examples("turnout mcp", "turnout mcp --url http://turnout.example:10000"))
def mcp(url: options.Url = options.DEFAULT_URL, token: options.Token = "") -> None:
    """Serve the tables of a running server to an agent, over standard input and output (MCP).

    The agent starts this command: see docs/how-to/mcp.md.
    """
    import anyio

    from turnout_client.http import Http

    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as error:
        raise needs_extra("mcp", PROGRAM.name) from error
    http = Http(url, token or None, "mcp")
    # A wrong address or token is reported now, not at the agent's first request.
    name = {"name": "turnout", "version": __version__}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": name}
    anyio.run(_pass_on, http, _asked(http, "initialize", hello)["instructions"])


async def _pass_on(http: Http, instructions: str) -> None:
    """Forward requests from standard input to the server, until the input ends."""
    from anyio.to_thread import run_sync
    from mcp import types as protocol
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    async def list_tools(_: object, __: object) -> protocol.ListToolsResult:
        return protocol.ListToolsResult.model_validate(await run_sync(_asked, http, "tools/list", {}))

    async def call_tool(_: object, asked: protocol.CallToolRequestParams) -> protocol.CallToolResult:
        called = {"name": asked.name, "arguments": asked.arguments or {}}
        try:
            return protocol.CallToolResult.model_validate(await run_sync(_asked, http, "tools/call", called))
        except TurnoutError as error:
            text = f"{error.message}\nhint: {error.hint}\ncode: {error.code}"
            return protocol.CallToolResult(content=[protocol.TextContent(type="text", text=text)], is_error=True)

    server: Server[Any] = Server(
        "turnout", version=__version__, instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _asked(http: Http, method: str, params: dict[str, Any]) -> Any:
    """Send one request to the server and return its result; the server needs no earlier request."""
    return http.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})["result"]
