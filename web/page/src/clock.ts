// Times on the page: in the browser's time zone. UTC, which the server uses, is shown on hover. Pure.

const two = (value: number): string => String(value).padStart(2, "0");

// Format the browser's UTC offset: `+9`, `+5:30`, or `Z` for UTC.
export function zoneOf(at: Date): string {
  const minutes = -at.getTimezoneOffset();
  if (minutes === 0) return "Z";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `${minutes < 0 ? "-" : "+"}${hours}${rest ? `:${two(rest)}` : ""}`;
}

// Return the name of the zone: UTC, UTC+9.
export const zoneName = (at = new Date()): string => `UTC${zoneOf(at).replace("Z", "")}`;

const isPlain = (at: Date): boolean => !Number.isNaN(at.getTime()) && at.getFullYear() > 0 && at.getFullYear() < 10_000;

export function dayText(at: Date): string {
  return `${String(at.getFullYear()).padStart(4, "0")}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export const timeText = (at: Date): string => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

// Format a time of the server in local time, with milliseconds if it has any; unusual years stay unchanged.
export function localText(text: string): string {
  const at = new Date(text);
  if (!isPlain(at)) return text;
  const part = /\.\d/.test(text) ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
  return `${dayText(at)} ${timeText(at)}${part} ${zoneOf(at)}`;
}

// Replace all UTC times in a text of the server by local times.
export const localMoments = (text: string): string => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, localText);

export const utcText = (text: string): string => text.replace("T", " ").replace(/Z$/, " UTC");

// Convert the value of a datetime-local field to UTC for the server.
export function fromField(text: string): string {
  const at = new Date(text);
  return isPlain(at) ? at.toISOString().replace(/\.000Z$/, "Z") : text;
}

// Convert a UTC time of the server to the value of a datetime-local field.
export function toField(text: string): string {
  const at = new Date(text);
  return isPlain(at) ? `${dayText(at)}T${timeText(at)}` : "";
}
