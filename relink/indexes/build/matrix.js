"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.querySelector("table");
  const [head, body] = [table.tHead, table.tBodies[0]];
  const frame = document.getElementById("frame");
  const search = document.getElementById("search");
  const only = document.getElementById("only");
  const found = document.getElementById("found");
  const dialog = document.querySelector("dialog");
  const WORDS = { g: "works", a: "in part", r: "no" };
  const BATCH = 60;

  const element = (name, text, more) => Object.assign(document.createElement(name), { textContent: text }, more);

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
    const colour = only.value;
    const kept = rows.filter((one) => words.every((word) => one.text.includes(word)) && (!colour || own.some((column) => {
      const cell = one.row.cells[column.target.target];
      return cell && cell.colours[column.at] === colour;
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
        last = { target: column.target, cell: element("th", column.target.target, { scope: "colgroup", colSpan: 1 }) };
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
        const colour = cell.colours[column.at];
        const level = cell.levels[column.at];
        const text = colour === "a" && level && level !== "full" ? `in part: ${level}` : WORDS[colour];
        const button = element("button", text, { className: colour, type: "button" });
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

  const draw = () => {
    choose();
    drawHead();
    body.replaceChildren();
    drawn = 0;
    frame.scrollTop = 0;
    drawMore();
    fill();
    found.textContent = `${shown.rows.length} of ${rows.length} wheels, ${shown.columns.length} of ${columns.length} columns`;
  };

  const explain = (row, column) => {
    const cell = row.cells[column.target.target];
    const gpu = column.gpu;
    document.getElementById("what").textContent =
      `${row.project} ${row.version} for ${column.target.target}${gpu ? `, ${gpu.name}` : ""}: ${WORDS[cell.colours[column.at]]}`;
    const more = document.getElementById("more");
    const parts = [element("p", data.texts[cell.text])];
    if (gpu && cell.levels[column.at]) parts.push(element("p", `Code for ${gpu.id}: ${cell.levels[column.at]}.`));
    if (cell.causes.length) {
      const list = document.createElement("ul");
      list.append(...cell.causes.map((number) => element("li", data.texts[number])));
      parts.push(element("h3", "Causes"), list);
    }
    if (cell.file) {
      const version = cell.file.split("-")[1];
      parts.push(element("h3", "Install"), element("pre", `pip install --index-url ADDRESS/${column.target.target}/simple/ ${row.project}==${version}`));
    }
    if (data.texts[cell.command]) parts.push(element("h3", "The same by hand"), element("pre", data.texts[cell.command]));
    const rocm = data.texts[cell.rocm];
    parts.push(element("p", `ROCm ${rocm || "?"} in ${column.target.prefixes.join(", ")}, fingerprint ${column.target.fingerprint.slice(0, 16)}.`));
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
