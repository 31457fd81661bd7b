// Run by tests/browser/test_web.py with the built client and a real server: prints each event as one line of JSON until
// its input ends.

import { connect } from "../dist/index.js";

const [url, token] = process.argv.slice(2);

/** Requests, and answers that change nothing, are events too. */
class Watched extends WebSocket {
  constructor(address: string, protocols: string[]) {
    super(address, protocols);
    this.addEventListener("message", ({ data }) => {
      const message = JSON.parse(String(data)) as { type: string };
      if (message.type === "current") print("current", message);
    });
  }

  override send(text: string): void {
    print("asked", JSON.parse(text) as object);
    super.send(text);
  }
}

const client = connect({ url: url!, ...(token ? { token } : {}), WebSocket: Watched });

function print(event: string, data: object): void {
  process.stdout.write(`${JSON.stringify({ event, ...data })}\n`);
}

client.onConnection((state) => print("connection", state.state === "refused" ? { ...state, code: state.error.code } : state));

client.window(
  { table: "final_ui", where: "age>30", sort: "-age", columns: ["name", "balance"], limit: 10 },
  {
    onRows: (rows, { generation, version, total, swapped }) => print("rows", { generation, version, total, swapped, rows }),
    onError: ({ code, hint }) => print("error", { code, hint }),
  },
);

client.window({ table: "final_ui", where: "agee>30" }, { onError: ({ code, hint }) => print("wrong", { code, hint }) });

for (const table of ["users_ui", "final_ui"]) {
  client.changes(table, {
    onChange: (change, { generation, version, rows }) => {
      print("mirror", { table, kind: change.kind, reason: "reason" in change ? change.reason : null, generation, version, rows: [...rows.values()] });
    },
    onError: ({ code, hint }) => print("error", { code, hint }),
  });
}

client.onStatus((status) => print("status", { state: status.state, generation: status.generation }));

process.stdin.resume().on("end", () => client.close());
