"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.querySelector("table");
  const [head, body] = [table.tHead, table.tBodies[0]];
  const frame = document.getElementById("frame");
  const search = document.getElementById("search");
  const only = document.getElementById("only");
  const found = document.getElementById("found");
  const LONG = ["works", "works, compiled on first use", "works in part", "lacks this card", "not published", "not tried yet"];
  const dialog = document.querySelector("dialog");
  const WORDS = ["works", "compiles", "in part", "lacks card", "not published", "not tried"];
  const BATCH = 60;
  const up = data.up;

  const element = (name, text, more) => Object.assign(document.createElement(name), { textContent: text }, more);

  // What stands above and below the table.
  const counts = LONG.map(() => 0);
  for (const row of data.rows) for (const cell of Object.values(row.cells)) for (const state of cell.states) counts[state] += 1;
  const told = counts.map((count, state) => count && `${count} ${LONG[state]}`).filter(Boolean).join("; ");
  document.getElementById("counts").textContent = `${data.rows.length} wheels, ${data.targets.length} targets. Cells: ${told || "none"}.`;
  only.append(...LONG.map((text, state) => element("option", text, { value: String(state) })));
  const about = document.getElementById("about");
  if (up) about.append(element("a", "All projects", { href: "../index.html" }));
  else if (data.projects) about.textContent = `The newest release of each of ${data.projects.length} projects; its name leads to the others.`;
  document.getElementById("targets").append(...data.targets.map((target) => {
    const section = document.createElement("section");
    const list = document.createElement("dl");
    const add = (term, value) => {
      const box = document.createElement("dd");
      box.append(value);
      list.append(element("dt", term), box);
    };
    const address = `${target.target}/simple/`;
    add("Index", element("a", address, { href: `${up}${address}index.html` }));
    add("Release", `${target.release} in ${target.prefixes.join(", ")}`);
    add("Fingerprint", element("code", target.fingerprint.slice(0, 16)));
    add("GPUs", target.gpus.map((gpu) => gpu.name).join(", ") || "none named");
    section.append(element("h3", target.target), list);
    return section;
  }));

  const columns = [];
  for (const target of data.targets) {
    const gpus = target.gpus.length ? target.gpus : [null];
    gpus.forEach((gpu, at) => columns.push({
      target, gpu, at,
      text: (gpu ? [target.target, gpu.id, gpu.name, ...gpu.products] : [target.target]).join(" ").toLowerCase(),
    }));
  }
  const rows = data.rows.map((row) => ({ row, text: `${row.project} ${row.version} ${row.tags}`.toLowerCase() }));

  let shown = { rows: [], columns: [] };
  let drawn = 0;

  // Words that a card's name has choose columns, the others choose rows. "rx 6750 xt" is first tried as one name.
  const choose = () => {
    const text = search.value.trim().toLowerCase();
    let own = columns;
    let words = text ? text.split(/\s+/) : [];
    if (text) {
      const whole = columns.filter((column) => column.text.includes(text));
      if (whole.length) {
        [own, words] = [whole, []];
      } else {
        for (const word of [...words]) {
          const some = own.filter((column) => column.text.includes(word));
          if (some.length && !rows.some((one) => one.text.includes(word))) {
            own = some;
            words = words.filter((one) => one !== word);
          }
        }
      }
    }
    const state = only.value;
    const kept = rows.filter((one) => words.every((word) => one.text.includes(word)) && (!state || own.some((column) => {
      const cell = one.row.cells[column.target.target];
      return cell && cell.states[column.at] === Number(state);
    })));
    shown = { rows: kept, columns: own };
  };

  const drawHead = () => {
    const [first, second] = [element("tr", ""), element("tr", "")];
    const corner = element("th", "Wheel", { scope: "col", rowSpan: 2 });
    first.append(corner);
    let last = null;
    for (const column of shown.columns) {
      if (last && last.target === column.target) {
        last.cell.colSpan += 1;
      } else {
        last = { target: column.target, cell: element("th", `${column.target.target}: ${column.target.release}`, { scope: "colgroup", colSpan: 1 }) };
        first.append(last.cell);
      }
      const gpu = column.gpu;
      const name = !gpu ? "any GPU" : gpu.name === gpu.id ? gpu.id : `${gpu.name} (${gpu.id})`;
      second.append(element("th", name, { scope: "col", title: gpu ? gpu.products.join(", ") : "" }));
    }
    head.replaceChildren(first, second);
  };

  const drawRow = ({ row }) => {
    const line = document.createElement("tr");
    const name = element("th", "", { scope: "row" });
    const strong = element("strong", data.projects ? "" : `${row.project} ${row.version}`);
    if (data.projects) strong.append(element("a", `${row.project} ${row.version}`, { href: `projects/${row.project}.html` }));
    name.append(strong, element("span", row.tags));
    line.append(name);
    for (const column of shown.columns) {
      const cell = row.cells[column.target.target];
      const box = document.createElement("td");
      if (cell) {
        const state = cell.states[column.at];
        const button = element("button", WORDS[state], { className: data.states[state], type: "button" });
        button.row = row;
        button.column = column;
        box.append(button);
      }
      line.append(box);
    }
    return line;
  };

  const drawMore = () => {
    const next = shown.rows.slice(drawn, drawn + BATCH);
    body.append(...next.map(drawRow));
    drawn += next.length;
  };

  const fill = () => {
    while (drawn < shown.rows.length && frame.scrollHeight < frame.scrollTop + 2 * frame.clientHeight + 200) drawMore();
  };

  // The name of a card that the index does not report on.
  const unknownCard = () => {
    const text = search.value.trim().toLowerCase();
    if (text.length < 4 || shown.rows.length) return "";
    const known = Object.entries(data.products).find(([, names]) => names.some((name) => name.toLowerCase().includes(text)));
    return known ? `${search.value.trim()} is ${known[0]}, and this index does not report on that.` : "";
  };

  const draw = () => {
    choose();
    drawHead();
    body.replaceChildren();
    drawn = 0;
    frame.scrollTop = 0;
    drawMore();
    fill();
    found.textContent = unknownCard() || `${shown.rows.length} of ${rows.length} wheels, ${shown.columns.length} of ${columns.length} columns`;
  };

  const explain = (row, column) => {
    const cell = row.cells[column.target.target];
    const gpu = column.gpu;
    document.getElementById("what").textContent =
      `${row.project} ${row.version} for ${column.target.target}${gpu ? `, ${gpu.name}` : ""}: ${WORDS[cell.states[column.at]]}`;
    const more = document.getElementById("more");
    const parts = [element("p", data.texts[cell.text])];
    if (cell.causes.length) {
      const list = document.createElement("ul");
      list.append(...cell.causes.map((number) => element("li", data.texts[number])));
      parts.push(element("h3", "Causes"), list);
    }
    if (cell.file) {
      // The label is in no other index, so the second one cannot take its place; what it depends on comes from pip's own.
      const version = cell.file.split("-")[1];
      const index = new URL(`${up}${column.target.target}/simple/`, document.baseURI).href;
      const from = version.includes("+") ? `--extra-index-url '${index}'` : `--no-deps --index-url '${index}'`;
      parts.push(element("h3", "Install"), element("pre", `pip install ${from} '${row.project}==${version}'`));
    }
    if (data.texts[cell.command]) parts.push(element("h3", "The same by hand"), element("pre", data.texts[cell.command]));
    parts.push(element("p", `${column.target.release} in ${column.target.prefixes.join(", ")}, fingerprint ${column.target.fingerprint.slice(0, 16)}.`));
    const history = data.changes.filter((one) => one.wheel === row.wheel && one.target === column.target.target);
    if (history.length) {
      const list = document.createElement("ul");
      list.append(...history.map((one) => element("li",
        `${new Date(one.time * 1000).toISOString().slice(0, 10)}: ${one.before || "new"} → ${one.after}`)));
      parts.push(element("h3", "History"), list);
    }
    more.replaceChildren(...parts);
    dialog.showModal();
  };

  body.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) explain(button.row, button.column);
  });
  document.getElementById("close").addEventListener("click", () => dialog.close());
  frame.addEventListener("scroll", fill, { passive: true });
  search.addEventListener("input", draw);
  only.addEventListener("change", draw);
  draw();
})();
