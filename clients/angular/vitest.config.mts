import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const SERVER = "tests/server.test.ts";
const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

// The tests use the built package: partially compiled code is compiled when it is loaded.
export default defineConfig({
  resolve: {
    alias: {
      "@turnout/angular/ag-grid": path("dist/fesm2022/turnout-angular-ag-grid.mjs"),
      "@turnout/angular": path("dist/fesm2022/turnout-angular.mjs"),
    },
  },
  test: {
    projects: [
      // Angular and its compiler are loaded once for all of these tests.
      { extends: true, test: { name: "browser", include: ["tests/**/*.test.ts"], exclude: [SERVER], isolate: false, maxWorkers: 1 } },
      // This test needs an environment without a document, which the other tests create.
      { extends: true, test: { name: "server", include: [SERVER] } },
    ],
  },
});
