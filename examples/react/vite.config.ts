import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The development server passes the API on, so that the page and the server are of one origin.
export default defineConfig({
  plugins: [react()],
  server: { port: 5173, proxy: { "/api": { target: "http://127.0.0.1:10000", ws: true } } },
});
