// The progress of a build: a bar, a line of text, and the plan that is built.

import type { Progress } from "@turnout/client";
import { localMoments } from "./clock";
import { byId, setText } from "./dom";
import { count, seconds, words } from "./format";

const STEPS: Record<NonNullable<Progress["step"]>, string> = {
  validating: "checking the topics",
  reading: "reading records",
  views: "computing views",
  publishing: "publishing",
};

// Describe the current step, the progress and the remaining time, as far as they are known.
export function progressText({ generation, state, step, percent, lag, secondsLeft }: Progress): string {
  const parts = [step ? STEPS[step] : words(state)];
  if (typeof percent === "number") parts.push(`${Math.floor(percent)}\u00a0%`);
  if (lag !== null && lag > 0) parts.push(`${count(lag, "record")} to go`);
  if (typeof secondsLeft === "number") parts.push(secondsLeft < 1 ? "nearly done" : `about ${seconds(Math.ceil(secondsLeft))} left`);
  return `Generation ${generation}: ${parts.join(", ")}`;
}

export function showProgress(progress: Progress | null): void {
  byId("building").hidden = !progress;
  if (!progress) return;
  const bar = byId<HTMLProgressElement>("progress");
  // Without a value the bar is indeterminate.
  if (typeof progress.percent === "number") bar.value = progress.percent;
  else bar.removeAttribute("value");
  setText(byId("progress-text"), progressText(progress));
  setText(byId("progress-plan"), localMoments(typeof progress.plan === "string" ? progress.plan : JSON.stringify(progress.plan)));
}
