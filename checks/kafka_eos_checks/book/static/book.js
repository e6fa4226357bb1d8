// Stepping through a story, and walking a state graph. Every page can be read without this file.
"use strict";

const text = (tag, words, style) => {
  const made = document.createElement(tag);
  made.textContent = words;
  if (style) made.className = style;
  return made;
};
const data = (name) => {
  const found = document.querySelector(`script[data-of="${name}"]`);
  return found && JSON.parse(found.textContent);
};
const busy = (event) => event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select");

const rows = (names, heads, cells) => {
  const table = document.createElement("table");
  table.className = "cards states";
  const head = table.createTHead().insertRow();
  for (const word of heads) {
    const cell = text("th", word);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const name of names) {
    const row = body.insertRow();
    cells(name).forEach((value, i) => {
      const cell = row.insertCell();
      cell.dataset.head = heads[i];
      cell.textContent = value;
    });
  }
  return table;
};

// The state around a step: what changed, before and after; the rest is folded away.
const compared = (names, before, after) => {
  const changed = names.filter((name) => before[name] !== after[name]);
  const same = names.filter((name) => before[name] === after[name]);
  const rest = rows(same, ["Variable", "Value"], (name) => [name, after[name]]);
  if (!changed.length) return rest;
  const all = document.createElement("div");
  const marked = rows(changed, ["Changed", "Before", "After"], (name) => [name, before[name], after[name]]);
  marked.classList.add("changed");
  const folded = document.createElement("details");
  folded.append(text("summary", `${same.length} unchanged variables`), rest);
  all.append(marked, folded);
  return all;
};

const story = () => {
  const bar = document.querySelector("[data-steps]");
  const states = data("states");
  if (!bar || !states) return;
  const steps = [...document.querySelectorAll("ol.story > li")];
  const list = document.querySelector("ol.story");
  const panel = document.querySelector("[data-states]");
  const whole = document.querySelector(".stepped");
  const figure = whole.querySelector("figure");
  const drawn = new Map([...whole.querySelectorAll("svg .step")].map((row) => [parseInt(row.querySelector("title").textContent, 10), row]));
  const violation = whole.querySelector("svg .violation");
  // The picture: the step is marked and moved into view, what comes after it is faint.
  const point = () => {
    whole.classList.toggle("stepping", at >= 0);
    drawn.forEach((row, number) => {
      row.classList.toggle("current", number === at);
      row.classList.toggle("later", number > at);
    });
    violation?.classList.toggle("later", at < steps.length - 1);
    if (!figure || at < 0) return;
    const row = drawn.get(at);
    const below = row ? row.getBoundingClientRect().top - figure.getBoundingClientRect().top + figure.scrollTop : 0;
    figure.scrollTop = below - figure.clientHeight / 2;
  };
  let at = -1; // all steps
  const show = (to) => {
    at = Math.max(-1, Math.min(steps.length - 1, to));
    steps.forEach((step, number) => { step.hidden = at >= 0 && number !== at; });
    list.start = Math.max(at, 0);
    bar.querySelector("[data-where]").textContent = at < 0 ? `all ${steps.length - 1} steps` : `step ${at} of ${steps.length - 1}`;
    panel.replaceChildren();
    point();
    if (at >= 0) panel.append(compared(Object.keys(states[at]), states[Math.max(at - 1, 0)], states[at]));
    if (at >= 0) history.replaceState(null, "", `#step-${at}`);
  };
  bar.hidden = false;
  drawn.forEach((row, number) => row.addEventListener("click", () => show(number)));
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) show("all" in button.dataset ? -1 : Math.max(at, at < 0 && button.dataset.go > 0 ? -1 : 0) + Number(button.dataset.go));
  });
  document.addEventListener("keydown", (event) => {
    if (busy(event) || event.target.closest("pre, figure")) return;
    if (event.key === "ArrowRight") show(at + 1);
    if (event.key === "ArrowLeft" && at >= 0) show(Math.max(at - 1, 0));
    if (event.key === "Escape") show(-1);
  });
  const asked = /^#step-(\d+)$/.exec(location.hash);
  show(asked ? Number(asked[1]) : -1);
};

const walk = () => {
  const place = document.querySelector("[data-try]");
  const graph = data("graph");
  if (!place || !graph) return;
  const values = (state) => Object.fromEntries(graph.variables.map((name, i) => [name, graph.texts[graph.states[state][i]]]));
  const action = (call) => call.split("(")[0];
  let path = [[-1, 0]]; // [instance, the state after it]
  const bar = text("div", "", "controls");
  const back = text("button", "← Back");
  const again = text("button", "Start again");
  const said = text("span", "");
  back.type = again.type = "button";
  said.setAttribute("aria-live", "polite");
  bar.append(back, again, said);
  const rest = text("div", "", "walk");
  place.replaceChildren(bar, rest);

  const go = (instance, state) => {
    path.push([instance, state]);
    draw();
    rest.querySelector("h2").focus({ preventScroll: true }); // the button that was pressed is gone
  };
  const undo = (to) => {
    path = to;
    draw();
    if (back.disabled) again.focus();
  };
  back.addEventListener("click", () => undo(path.slice(0, -1)));
  again.addEventListener("click", () => undo(path.slice(0, 1)));
  document.addEventListener("keydown", (event) => {
    if (!busy(event) && event.key === "ArrowLeft" && path.length > 1) undo(path.slice(0, -1));
  });

  const draw = () => {
    const [last, state] = path[path.length - 1];
    const before = path.length > 1 ? path[path.length - 2][1] : state;
    const edges = new Map();
    const row = graph.edges[state];
    for (let i = 0; i < row.length; i += 2) edges.set(row[i], row[i + 1]);
    back.disabled = path.length < 2;
    said.textContent = last < 0 ? "The first state." : `After ${graph.calls[last]}: ${graph.sentences[action(graph.calls[last])]}`;

    const choices = document.createElement("ul");
    choices.className = "choices";
    for (const [instance, to] of edges) {
      const call = graph.calls[instance];
      const item = document.createElement("li");
      const button = text("button", call);
      button.type = "button";
      button.disabled = to < 0;
      button.addEventListener("click", () => go(instance, to));
      item.append(button, text("span", to < 0 ? "beyond the bounds of this model" : graph.sentences[action(call)]));
      choices.append(item);
    }
    const refusals = new Map(); // action and reason -> calls
    [...graph.refused[graph.rows[state]]].forEach((mark, instance) => {
      if (mark === " ") return;
      const reason = graph.reasons[mark.codePointAt(0) - 40];
      const key = `${action(graph.calls[instance])}\n${reason}`;
      refusals.set(key, (refusals.get(key) || 0) + 1);
    });
    const refused = document.createElement("details");
    refused.append(text("summary", `${refusals.size} refusals`));
    const list = document.createElement("ul");
    for (const [key, count] of refusals) {
      const [name, reason] = key.split("\n");
      const item = document.createElement("li");
      const link = text("a", name);
      link.href = graph.targets[name];
      item.append(link, document.createTextNode(`: ${reason}${count > 1 ? ` (${count} instances)` : ""}`));
      list.append(item);
    }
    refused.append(list);
    refused.dataset.refused = "";
    refused.open = rest.querySelector("[data-refused]")?.open ?? window.innerWidth > 700;
    const trail = document.createElement("ol");
    trail.className = "trail";
    path.slice(1).forEach(([instance]) => trail.append(text("li", graph.calls[instance])));
    const heading = (words) => text("h2", words);
    const choose = heading("Choose a step");
    choose.tabIndex = -1;
    const next = document.createElement("div");
    const found = document.createElement("div");
    next.append(choose, edges.size ? choices : text("p", "No action is enabled: the run ends here."), heading("Refused"), refused);
    found.append(
      heading("State"), compared(graph.variables, values(before), values(state)),
      heading("Steps so far"), path.length > 1 ? trail : text("p", "None."),
    );
    rest.replaceChildren(next, found);
  };
  draw();
};

story();
walk();
