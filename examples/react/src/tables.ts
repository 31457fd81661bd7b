// Written by `turnout types`: run it again when columns change.

export interface FinalUi {
  userId: string | null;
  name: string | null;
  email: string | null;
  age: number | null; // int64
  accountType: string | null;
  balance: number | null; // double
}
