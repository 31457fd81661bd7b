"""A real Jupyter kernel in a separate process, which runs notebook cells and records messages of widgets."""

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
    """A kernel that runs cells one after the other, as a notebook does."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client
        self.widgets: dict[str, Json] = {}
        """The state of each open widget in a browser, by the id of its model."""

    def run(self, cell: str) -> Json:
        """Run a cell, and return its output by type; an error of the cell raises AssertionError."""
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
        """Process messages of widgets until a condition is true, without running a cell."""
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
    """Run a kernel of this Python during a `with` block, with its files in `folder`."""
    from jupyter_client.manager import KernelManager  # not at the top: it takes half a second in every worker

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
