// Live Kafka views of Turnout in React, with the client and the types of all messages.

export * from "@turnout/client";
export type { SwapState, TurnoutConnection } from "@turnout/client/frameworks";
export { TurnoutProvider, useTurnout, type TurnoutProviderProps } from "./provider.js";
export { useSql, useSummary, useWindow, type LiveRows } from "./live.js";
export { useConnection, useStatus } from "./status.js";
export { useSwap, type SwapCalls, type Swapping } from "./swap.js";
