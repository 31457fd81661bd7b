// Rendering on a server: no socket, no call, empty rows.

import { renderToString } from "react-dom/server";
import { expect, test, vi } from "vitest";
import { TurnoutProvider, useConnection, useStatus, useSwap, useWindow } from "@turnout/react";

function Page(): string {
  const { rows } = useWindow({ table: "final_ui" });
  return `${useConnection().state}, ${rows.length} rows, ${useStatus() === null}, ${useSwap().allowed}`;
}

test.each([undefined, "http://127.0.0.1:1"])("a page is rendered with the address %s, and no connection is made", (url) => {
  expect(globalThis).not.toHaveProperty("document");
  const sockets = vi.fn();
  vi.stubGlobal("WebSocket", sockets);
  const html = renderToString(
    <TurnoutProvider {...(url === undefined ? {} : { url })}>
      <Page />
    </TurnoutProvider>,
  );
  expect(html).toBe("connecting, 0 rows, true, false");
  expect(sockets).not.toHaveBeenCalled();
});
