// SPDX-License-Identifier: BSD-3-Clause
// Requests to the server that the page came from.

/** Returns the JSON of an answer.  An Error has the server's reason. */
export async function ask(path, method = "GET", body = undefined) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Nupa-Request"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
  });
  if (answer.status === 204) return null;
  const found = await answer.json().catch(() => null);
  if (!answer.ok) {
    throw new Error(found?.error?.message ?? `${path}: the server answers ${answer.status}`);
  }
  return found;
}
