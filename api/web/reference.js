"use strict";
const token = document.getElementById("token");
token.value = sessionStorage.getItem("carillon-token") || "";
token.addEventListener("input", () => sessionStorage.setItem("carillon-token", token.value));

async function send(form, show) {
  const query = new URLSearchParams();
  const headers = {};
  let path = form.dataset.path;
  for (const input of form.querySelectorAll("[data-in]")) {
    const { name, value, dataset } = input;
    if (dataset.in === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
    else if (value && dataset.in === "query") query.append(name, value);
    else if (value && dataset.in === "header") headers[name] = value;
  }
  if (token.value) headers.authorization = `Bearer ${token.value}`;
  const body = form.elements.body;
  if (body) headers["content-type"] = "application/json";
  const search = query.size ? `?${query}` : "";
  const response = await fetch(path + search, { method: form.dataset.method, headers, body: body?.value });
  const named = ["etag", "location", "retry-after"].filter((name) => response.headers.has(name));
  const lines = named.map((name) => `${name}: ${response.headers.get(name)}`);
  const head = [`${response.status} ${response.statusText}`, ...lines, "", ""].join("\n");
  if (response.headers.get("content-type")?.startsWith("text/event-stream")) return follow(response, head, show);
  const text = await response.text();
  let shown = text;
  try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: shown as it is */ }
  show(head + shown);
}

/* A stream has no end of its own: what came last is shown as it comes, until the page is left. */
async function follow(response, head, show) {
  let text = "";
  for await (const part of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
    text = (text + part).slice(-20000);
    show(head + text);
  }
}

async function* chunks(stream) {
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const out = form.querySelector("pre");
    out.hidden = false;
    out.textContent = "…";
    const show = (text) => { out.textContent = text; };
    await send(form, show).catch((error) => show(String(error)));
  });
}
