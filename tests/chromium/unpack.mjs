// Unpacks Chromium with its libraries, fonts and graphics. `inflate` writes into the folder that TMPDIR names.
import { fileURLToPath } from "node:url";
import { inflate } from "@sparticuz/chromium";

const packed = new URL("node_modules/@sparticuz/chromium/bin/", import.meta.url);
for (const name of ["chromium.br", "al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br"]) {
  await inflate(fileURLToPath(new URL(name, packed)));
}
