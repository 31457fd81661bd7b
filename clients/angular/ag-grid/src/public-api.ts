// AG Grid, fed from a window of a table.

export { TurnoutTable } from "./directive";
export { columnDefs } from "./columns";
