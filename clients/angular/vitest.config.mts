import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const SERVER = "tests/server.test.ts";
const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

// The tests are of the package as it is shipped: what is not compiled to the end is compiled when it is loaded.
export default defineConfig({
  resolve: {
    alias: {
      "@turnout/angular/ag-grid": path("dist/fesm2022/turnout-angular-ag-grid.mjs"),
      "@turnout/angular": path("dist/fesm2022/turnout-angular.mjs"),
    },
  },
  test: {
    projects: [
      // Angular and its compiler are loaded once for all of them.
      { extends: true, test: { name: "browser", include: ["tests/**/*.test.ts"], exclude: [SERVER], isolate: false, maxWorkers: 1 } },
      // It must find no document, which the others make for theirs.
      { extends: true, test: { name: "server", include: [SERVER] } },
    ],
  },
});
