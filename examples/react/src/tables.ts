// Written by `turnout types`: run it again when a table has other columns.

export interface FinalUi {
  userId: string | null;
  name: string | null;
  email: string | null;
  age: number | null; // int64
  accountType: string | null;
  balance: number | null; // double
}
