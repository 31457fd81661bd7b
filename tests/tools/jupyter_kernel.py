"""A real Jupyter kernel in a process of its own: it runs the cells of a notebook, and what its widgets send is kept."""

from __future__ import annotations

import json
import os
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.testing import patience

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

Json = dict[str, Any]


def code_cells(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


class Kernel:
    """Runs cells one after the other, as a notebook does."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client
        self.widgets: dict[str, Json] = {}
        """The state of each widget as a browser knows it, by the id of its model; closed ones are gone."""

    def run(self, cell: str) -> Json:
        """Run a cell to its end; what it shows, by type. Its error is an AssertionError."""
        request = self._client.execute(cell)
        shown: Json = {}
        while True:
            message = self._next()
            content, kind = message["content"], message["msg_type"]
            if message["parent_header"].get("msg_id") != request:
                continue
            assert kind != "error", f"{cell}\n" + "\n".join(content["traceback"])
            if kind == "execute_result":
                shown = content["data"]
            if kind == "status" and content["execution_state"] == "idle":
                return shown

    def wait_for(self, condition: Callable[[Any], bool], given: object) -> None:
        """Wait for what widgets send by themselves: no cell runs."""
        while not condition(given):
            self._next()

    def _next(self) -> Json:
        try:
            message: Json = self._client.get_iopub_msg(timeout=patience())
        except queue.Empty:
            raise TimeoutError(f"the kernel sent nothing; widgets: {self.widgets}") from None
        content, kind = message["content"], message["msg_type"]
        if kind == "comm_open" and content["target_name"] == "jupyter.widget":
            self.widgets[content["comm_id"]] = dict(content["data"]["state"])
        elif kind == "comm_msg" and content["comm_id"] in self.widgets:
            self.widgets[content["comm_id"]].update(content["data"].get("state", {}))
        elif kind == "comm_close":
            self.widgets.pop(content["comm_id"], None)
        return message


@contextmanager
def running_kernel(folder: Path) -> Iterator[Kernel]:
    """A kernel of this Python, which keeps its files in `folder`."""
    from jupyter_client.manager import KernelManager  # takes half a second, also in workers that run other files

    manager = KernelManager(connection_file=str(folder / "kernel.json"))
    manager.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": str(folder / "ipython")})
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=patience())
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
