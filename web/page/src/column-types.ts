// Written by scripts/generate_types.py from turnout_client.column_types (`make types`): change it there.

type ColumnType = { json: "string" | "number" | "boolean"; number: boolean; whole: boolean; time: boolean };

const COLUMN_TYPES: Record<string, ColumnType> = {
  string: { json: "string", number: false, whole: false, time: false },
  boolean: { json: "boolean", number: false, whole: false, time: false },
  int32: { json: "number", number: true, whole: true, time: false },
  int64: { json: "number", number: true, whole: true, time: false },
  float: { json: "number", number: true, whole: false, time: false },
  double: { json: "number", number: true, whole: false, time: false },
  decimal: { json: "string", number: true, whole: false, time: false },
  date: { json: "string", number: false, whole: false, time: true },
  timestamp: { json: "string", number: false, whole: false, time: true },
};

// Return the properties of a type; undefined for a type that only SQL produces.
const known = (type: string): ColumnType | undefined => COLUMN_TYPES[type.replace(/\(.*/, "")];

export const isNumeric = (type: string): boolean => known(type)?.number ?? false;
export const isWhole = (type: string): boolean => known(type)?.whole ?? false;
export const isTime = (type: string): boolean => known(type)?.time ?? false;
