// Live Kafka views of Turnout, in browsers and in Node 22 or newer.

export { connect, TurnoutClient, type ConnectOptions } from "./client.js";
export { TurnoutError } from "./errors.js";
export { rowId, type AnyRow } from "./rows.js";
export { WindowSubscription, type WindowCallbacks, type WindowInfo, type WindowOptions, type WindowStep } from "./window.js";
export {
  DifferenceSubscription,
  SqlSubscription,
  SummarySubscription,
  type ComputedCallbacks,
  type ComputedStep,
  type DifferenceInfo,
  type SqlInfo,
  type SqlSubscribeOptions,
  type SummaryInfo,
  type SummaryOptions,
  type SummaryPast,
} from "./computed.js";
export { TableMirror, type ChangesOptions, type MirrorCallbacks, type MirrorChange } from "./mirror.js";
export type { ConnectionState, Socket, SocketMaker } from "./connection.js";
export type {
  Candidate,
  ChangedRow,
  ControlMessage,
  ControlOptions,
  Difference,
  DifferenceOptions,
  DryRunReport,
  Outcome,
  Progress,
  RowsOptions,
  SavedView,
  SinkStatus,
  AlertState,
  SqlOptions,
  SqlRows,
  Status,
  Summary,
  Swap,
  TableInfo,
  TableRows,
  Token,
  TopicExample,
  WhoAmI,
  Why,
  WhyQuestion,
  WhyRecord,
} from "./api.js";
export * from "./messages.js";
