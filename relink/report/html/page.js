"use strict";
// Filtering and copying. Everything else works without.
{
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
