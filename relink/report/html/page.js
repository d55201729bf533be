"use strict";
// Zooming, dragging, looking at one node, filtering, and copying. Everything else works without.
{
  const graph = document.querySelector(".graph");
  const svg = graph?.querySelector("svg");
  if (svg) {
    const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
    let scale = 1, fitted = true;
    const zoom = (wanted, x = graph.clientWidth / 2, y = graph.clientHeight / 2) => {
      const next = Math.min(3, Math.max(0.15, wanted));
      const left = (graph.scrollLeft + x) * next / scale - x, top = (graph.scrollTop + y) * next / scale - y;
      scale = next;
      svg.setAttribute("width", Math.round(width * scale));
      svg.setAttribute("height", Math.round(height * scale));
      graph.scrollTo(left, top);
    };
    const fit = () => {
      // clientWidth is 0 where the column is shown instead.
      const tall = parseFloat(getComputedStyle(graph).maxHeight) || height;
      if (graph.clientWidth) zoom(Math.min(1, graph.clientWidth / width, tall / height));
      fitted = true;
    };
    const chosen = (wanted) => () => { fitted = false; zoom(wanted()); };
    const actions = {
      "zoom-in": chosen(() => scale * 1.25), "zoom-out": chosen(() => scale / 1.25), "zoom-fit": fit, "zoom-full": chosen(() => 1),
    };
    graph.classList.add("zoomed");
    fit();
    addEventListener("resize", () => { if (fitted) fit(); });
    for (const [id, action] of Object.entries(actions)) document.getElementById(id).addEventListener("click", action);
    document.querySelector(".buttons").hidden = false;
    const keys = { "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", "0": "zoom-full", f: "zoom-fit" };
    graph.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      actions[keys[event.key]]();
      event.preventDefault();
    });
    graph.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // a plain wheel scrolls, as everywhere
      const frame = graph.getBoundingClientRect();
      fitted = false;
      zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
      event.preventDefault();
    }, { passive: false });

    let grip = null; // where a mouse took hold of the drawing
    graph.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      grip = { x: event.clientX, y: event.clientY, left: graph.scrollLeft, top: graph.scrollTop, moved: false };
    });
    addEventListener("pointermove", (event) => {
      if (!grip) return;
      const right = event.clientX - grip.x, down = event.clientY - grip.y;
      if (!grip.moved && Math.hypot(right, down) < 4) return;
      grip.moved = true;
      graph.classList.add("grabbed");
      graph.scrollTo(grip.left - right, grip.top - down);
    });
    addEventListener("pointerup", () => {
      graph.classList.remove("grabbed");
      if (grip?.moved) addEventListener("click", (event) => event.preventDefault(), { capture: true, once: true });
      setTimeout(() => { grip = null; });
    });
    graph.addEventListener("dragstart", (event) => event.preventDefault());

  }

  const looked = (svg) => {
    const edges = [...svg.querySelectorAll(".edge")], nodes = [...svg.querySelectorAll(".node")];
    const look = (node) => {
      svg.classList.toggle("looking", Boolean(node));
      const near = new Set(node ? [node.dataset.node] : []);
      for (const edge of edges) {
        const on = Boolean(node) && (edge.dataset.from === node.dataset.node || edge.dataset.to === node.dataset.node);
        edge.classList.toggle("near", on);
        if (on) near.add(edge.dataset.from).add(edge.dataset.to);
      }
      for (const other of nodes) other.classList.toggle("near", near.has(other.dataset.node));
    };
    for (const node of nodes) {
      node.addEventListener("pointerenter", () => { if (!graph.classList.contains("grabbed")) look(node); });
      node.addEventListener("pointerleave", () => look(null));
      node.addEventListener("focus", () => { if (node.matches(":focus-visible")) look(node); });
      node.addEventListener("blur", () => look(null));
    }
  };
  document.querySelectorAll(".graph svg, .graph-column svg").forEach(looked);

  const told = document.getElementById("copied");
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const command = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(command.textContent);
      } catch { // no permission: select it, and let the browser copy the selection
        getSelection().selectAllChildren(command);
        if (!document.execCommand("copy")) {
          told.value = "The command is selected: copy it by keyboard";
          return;
        }
      }
      button.textContent = "Copied";
      told.value = "Copied";
      setTimeout(() => { button.textContent = "Copy"; told.value = ""; }, 2000);
    });
  }

  const filter = document.getElementById("filter-findings");
  if (filter) {
    const count = filter.closest(".filter").querySelector("output");
    const items = [...document.querySelectorAll(".cause")];
    const groups = [...document.querySelectorAll(".findings")];
    const texts = items.map((item) => item.textContent.toLowerCase());
    filter.closest(".filter").hidden = false;
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      items.forEach((item, number) => {
        item.hidden = !words.every((word) => texts[number].includes(word));
        if (words.length && !item.hidden) item.parentElement.closest("details.more")?.setAttribute("open", "");
      });
      for (const group of groups) {
        group.hidden = !group.querySelector(".cause:not([hidden])");
        if (words.length && group.localName === "details") group.open = true;
      }
      count.value = words.length ? `${items.filter((item) => !item.hidden).length} of ${items.length}` : "";
    });
  }

  // A link into a closed part opens it and all around it, and printing opens all.
  const reveal = () => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = place?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    place?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
}
