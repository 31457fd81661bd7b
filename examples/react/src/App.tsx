import { useState } from "react";
import { useConnection, useStatus, useSummary, useWindow } from "@turnout/react";
import { FinalTable } from "./FinalTable";
import { SwapForm } from "./SwapForm";
import type { FinalUi } from "./tables";

const PAGE = 50;

/** `final_ui`, which the server sorts and filters, a summary of it, and the swap beside it. */
export function App() {
  const [where, setWhere] = useState("");
  const [sort, setSort] = useState("");
  const view = useWindow<FinalUi>({ table: "final_ui", where, sort, limit: PAGE });
  const types = useSummary<{ accountType: string | null; count: number }>({ table: "final_ui", by: "accountType", where, sort: "-count", limit: 5 });
  const plan = useStatus((status) => (status?.generation ? `${String(status["usersTopic"])} and ${String(status["accountsTopic"])}, join ${status.joinType}` : ""));
  const connection = useConnection();
  const error = connection.state === "refused" ? connection.error : view.error;
  return (
    <main>
      <header>
        <h1>final_ui</h1>
        {view.info && <span className="badge">generation {view.info.generation}</span>}
        {view.info && <span className="total">{view.info.total} rows</span>}
        <span>{plan}</span>
        <span className={`connection ${connection.state}`} role="status">
          {connection.state}
        </span>
      </header>
      <form action={(form) => setWhere(String(form.get("where")))}>
        <label>
          Where <input name="where" type="search" key={where} defaultValue={where} placeholder="age>=30, name icontains bo" />
        </label>
        <button type="submit">Filter</button>
        <span className="types">{types.rows.map(({ accountType, count }) => `${accountType ?? "none"} ${count}`).join(", ")}</span>
      </form>
      <SwapForm />
      {error && (
        <p className="error" role="alert">
          {error.message}: {error.hint}
        </p>
      )}
      <FinalTable rows={view.rows} columns={view.info?.columns ?? []} sort={sort} onSort={setSort} />
    </main>
  );
}
