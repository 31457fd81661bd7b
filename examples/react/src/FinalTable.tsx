import { memo } from "react";
import { type ColumnInfo, rowId } from "@turnout/react";
import type { FinalUi } from "./tables";

interface Props {
  rows: readonly FinalUi[];
  columns: readonly ColumnInfo[];
  sort: string;
  onSort(sort: string): void;
}

/** A table whose headers sort: up, down, not at all. */
export function FinalTable({ rows, columns, sort, onSort }: Props) {
  const next = (name: string) => (sort === name ? `-${name}` : sort === `-${name}` ? "" : name);
  const order = (name: string) => (sort === name ? "ascending" : sort === `-${name}` ? "descending" : "none");
  return (
    <table>
      <thead>
        <tr>
          {columns.map(({ name }) => (
            <th key={name} aria-sort={order(name)}>
              <button type="button" onClick={() => onSort(next(name))}>
                {name}
              </button>
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <Row key={rowId(row)} row={row} columns={columns} />
        ))}
      </tbody>
    </table>
  );
}

/** A row that did not change is the same object, so it is not rendered again. */
const Row = memo(({ row, columns }: { row: FinalUi; columns: readonly ColumnInfo[] }) => (
  <tr>
    {columns.map(({ name }) => (
      <td key={name} data-column={name}>
        {row[name as keyof FinalUi]}
      </td>
    ))}
  </tr>
));
