// Calls of the server. An answer that is no success throws an ApiError with the server's code, message and hint.

const READ_TIMEOUT_MS = 10000;

export class ApiError extends Error {
  constructor(status, shape) {
    super(shape?.message ?? `the server answered ${status}`);
    this.status = status;
    this.hint = shape?.hint ?? "";
    this.code = shape?.code ?? "";
  }
}

export function getJson(address) {
  return call(address, { signal: AbortSignal.timeout(READ_TIMEOUT_MS) });
}

// Without a time limit: the outcome of a swap comes when it is built.
export function postJson(address, message) {
  return call(address, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Turnout-Client": "page" },
    body: JSON.stringify(message),
  });
}

async function call(address, options) {
  const answer = await fetch(address, options);
  const body = await answer.json();
  if (!answer.ok) throw new ApiError(answer.status, body?.error);
  return body;
}
