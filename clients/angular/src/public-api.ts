// Live Kafka views of Turnout in Angular, with the client and the types of all messages.

export * from "@turnout/client";
export { provideTurnout, type TurnoutOptions } from "./provide";
export type { SwapState, TurnoutConnection } from "@turnout/client/frameworks";
export type { LiveRows, LiveStep, Reactive } from "./live";
export { Turnout } from "./turnout";
export { TurnoutSwap } from "./swap";
