// AG Grid with the live rows of a table.

export { TurnoutTable } from "./directive";
export { columnDefs } from "./columns";
