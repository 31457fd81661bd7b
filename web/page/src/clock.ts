// One clock for the whole page: the time of this browser, with its zone. UTC, which the server speaks, shows on hover. Pure.

const two = (value: number): string => String(value).padStart(2, "0");

// `+9`, `+5:30`; `Z` where it is UTC.
export function zoneOf(at: Date): string {
  const minutes = -at.getTimezoneOffset();
  if (minutes === 0) return "Z";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `${minutes < 0 ? "-" : "+"}${hours}${rest ? `:${two(rest)}` : ""}`;
}

// The zone as people say it: UTC, UTC+9.
export const zoneName = (at = new Date()): string => `UTC${zoneOf(at).replace("Z", "")}`;

const isPlain = (at: Date): boolean => !Number.isNaN(at.getTime()) && at.getFullYear() > 0 && at.getFullYear() < 10_000;

export function dayText(at: Date): string {
  return `${String(at.getFullYear()).padStart(4, "0")}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export const timeText = (at: Date): string => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

// A moment of the server, to the millisecond where it has some; years that no browser knows stay as they came.
export function localText(text: string): string {
  const at = new Date(text);
  if (!isPlain(at)) return text;
  const part = /\.\d/.test(text) ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
  return `${dayText(at)} ${timeText(at)}${part} ${zoneOf(at)}`;
}

// A text of the server with its moments in the time of this browser.
export const localMoments = (text: string): string => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, localText);

export const utcText = (text: string): string => text.replace("T", " ").replace(/Z$/, " UTC");

// What a browser's field for a local moment gives, as the server reads it; and back.
export function fromField(text: string): string {
  const at = new Date(text);
  return isPlain(at) ? at.toISOString().replace(/\.000Z$/, "Z") : text;
}

export function toField(text: string): string {
  const at = new Date(text);
  return isPlain(at) ? `${dayText(at)}T${timeText(at)}` : "";
}
