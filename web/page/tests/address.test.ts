import { describe, expect, test } from "vitest";
import { emptyView, fromHash, toHash, type Place } from "../src/address";
import { emptyReview } from "../src/review";

const place: Place = {
  view: {
    table: "final_ui",
    where: "name = 'a&b#c'",
    filters: [{ column: "age", op: "between", values: ["1", "2"] }],
    sort: [{ column: "age", descending: true }],
    sorted: true,
    hidden: ["email"],
    chart: { kind: "histogram", by: "age", width: "10", value: "sum", of: "balance", minutes: 10 },
    row: "12:7",
  },
  sql: null,
  review: null,
};

describe("the address", () => {
  test("brings back what was looked at", () => {
    expect(fromHash(toHash(place))).toEqual(place);
  });

  test("brings back a chart that is still to be found", () => {
    const auto: Place = { view: { ...emptyView("t"), chart: "auto" }, sql: null, review: null };
    expect(fromHash(toHash(auto))).toEqual(auto);
  });

  test("brings back SQL as it was written, and the table beside it", () => {
    const text = "select *\nfrom \"a b\" -- 100 % & more #1\nwhere x = 'ü+='";
    const sql: Place = { ...place, sql: { text, live: true, chart: { kind: "line", by: "at", value: "n" } } };
    expect(fromHash(toHash(sql))).toEqual(sql);
    const alone: Place = { view: emptyView(""), sql: { text: "", live: false, chart: null }, review: null };
    expect(fromHash(toHash(alone))).toEqual(alone);
  });

  test("brings back a review, with the table behind it", () => {
    const review = { table: "users ui", where: "age > 3, name = 'a&b'", change: "added" as const, sort: [{ column: "age", descending: true }] };
    expect(fromHash(toHash({ ...place, review }))).toEqual({ ...place, review });
    expect(fromHash("#review=")).toEqual({ view: emptyView(""), sql: null, review: emptyReview() });
    expect(fromHash('#review=t&change=dropped&order=[["a"],["b",true]]')?.review).toEqual({ ...emptyReview("t"), sort: [{ column: "b", descending: true }] });
  });

  test("takes what is no chart of a SELECT for none", () => {
    for (const text of ["[", "1", '{"kind":"pie","by":"a","value":"b"}', '{"kind":"bars","by":1,"value":"b"}']) {
      expect(fromHash(`#sql=select&plot=${encodeURIComponent(text)}`)?.sql?.chart).toBeNull();
    }
  });

  test("leaves out what is no view", () => {
    expect(fromHash("")).toBeNull();
    const odd = fromHash('#table=t&filters=[1,{"column":2},null]&sort={"a":1}&hidden=[1,"a"]&token=secret&chart={"kind":"pie"}');
    expect(odd).toEqual({ view: { ...emptyView("t"), sorted: true, hidden: ["a"] }, sql: null, review: null });
  });

  test.each(["[", "null", "1", "[]", '{"kind":"bars"}', '{"kind":"bars","by":7}', '{"kind":"line","minutes":1e9}', '{"kind":"bars","by":"a","value":"drop"}'])(
    "takes %s for no chart",
    (text) => {
      expect(fromHash(`#table=t&chart=${encodeURIComponent(text)}`)?.view.chart).toBeNull();
    },
  );
});
