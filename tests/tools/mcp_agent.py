"""Agents: the MCP client of the SDK, over HTTP or over standard input and output of `turnout mcp`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from http_server import SECONDS


@dataclass(frozen=True, slots=True)
class Agent:
    """A connected client of the SDK."""

    client: Client

    async def tools(self) -> set[str]:
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def call(self, name: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(name, arguments)
        [content] = result.content
        text = getattr(content, "text", "")
        assert not result.is_error, text
        return json.loads(text)

    async def refusal(self, name: str, **arguments: Any) -> str:
        result = await self.client.call_tool(name, arguments)
        assert result.is_error
        return str(getattr(result.content[0], "text", ""))


def talk(url: str, work: Callable[[Agent], Any], transport: str = "http", token: str = "") -> Any:
    """Return the result of `work` with an agent that is connected to the server."""

    async def over_http() -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            return await work(Agent(client))

    async def over_stdio() -> Any:
        command = ["-m", "turnout", "mcp", "--url", url]
        process = StdioServerParameters(
            command=sys.executable, args=command, env={**os.environ, "TURNOUT_TOKEN": token}
        )
        async with Client(process) as client:
            return await work(Agent(client))

    return anyio.run(over_http if transport == "http" else over_stdio)
