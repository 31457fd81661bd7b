// The page is built into the Python package, which serves index.html at `/` and the rest under /static/.

import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const SERVER = process.env["TURNOUT_URL"] ?? "http://127.0.0.1:10000";

export default defineConfig({
  base: "/static/",
  // The client's source, not what it was last built to: the page never runs with an older one.
  resolve: { alias: { "@turnout/client": fileURLToPath(new URL("../../clients/typescript/src/index.ts", import.meta.url)) } },
  build: {
    outDir: "../../src/turnout/serve/static",
    emptyOutDir: true,
    target: "es2023",
    // The server's Content-Security-Policy takes no data: addresses.
    assetsInlineLimit: 0,
    modulePreload: false,
    chunkSizeWarningLimit: 1200,
  },
  server: { proxy: { "/api": { target: SERVER, ws: true, changeOrigin: true } } },
  test: { include: ["tests/**/*.test.ts"], isolate: false, pool: "threads" },
});
