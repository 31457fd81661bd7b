// A document for component tests, with Node's own fetch and WebSocket, which use a real server.

import { Window } from "happy-dom";

const window = new Window({ url: "http://127.0.0.1/" });
for (const name of Object.getOwnPropertyNames(window)) {
  if (name in globalThis) continue;
  Object.defineProperty(globalThis, name, { value: Reflect.get(window, name) as unknown, configurable: true, writable: true });
}
Object.defineProperty(globalThis, "window", { value: globalThis, configurable: true });
