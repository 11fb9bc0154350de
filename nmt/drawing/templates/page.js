"use strict";
// Values on hover and focus, arrow keys in maps, sorting of tables, and a filter of sentences.
// Without JavaScript, all texts and tables are readable.
(() => {
  const make = (name, properties) => Object.assign(document.createElement(name), properties);
  const all = (selector, parent = document) => [...parent.querySelectorAll(selector)];

  // The value below the pointer or the focus, inside the window.
  const tip = document.body.appendChild(make("div", { className: "tip", hidden: true }));
  tip.setAttribute("role", "status");
  document.body.classList.add("live");
  const show = event => {
    const place = event.target.closest?.("[data-value]");
    tip.hidden = !place;
    if (!place) return;
    tip.textContent = place.dataset.value;
    const box = place.getBoundingClientRect();
    const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
    tip.style.left = Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = (below ? box.bottom + 6 : box.top - 6 - tip.offsetHeight) + "px";
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { capture: true, passive: true });
  document.addEventListener("keydown", event => { if (event.key === "Escape") tip.hidden = true; });

  // A map is one tab stop; arrow keys move between its cells.
  for (const cell of all("[data-grid] td[data-value]")) cell.setAttribute("aria-label", cell.dataset.value);
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  document.addEventListener("keydown", event => {
    const cell = event.target.closest("[data-value]"), step = steps[event.key];
    const grid = cell?.closest("[data-grid]");
    if (!grid || !step) return;
    const cells = all("[data-value]", grid), columns = Number(grid.dataset.grid);
    const at = cells.indexOf(cell), next = cells[at + step[0] * columns + step[1]];
    const leavesRow = step[1] && Math.floor(at / columns) !== Math.floor((at + step[1]) / columns);
    event.preventDefault();
    if (!next || leavesRow) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  // A click on the head of a column sorts the rows: by value, or by text.
  const value = text => {
    const number = text.replace(/,/g, "").replace("−", "-").match(/-?\d+(\.\d+)?/);
    return number ? Number(number[0]) : null;
  };
  const sort = (table, column, ascending) => {
    const key = row => row.cells[column].textContent.trim();
    const rows = all("tbody tr", table);
    const isText = table.tHead.rows[0].cells[column].classList.contains("key") && rows.some(row => value(key(row)) === null);
    const compare = isText
      ? (a, b) => key(a).localeCompare(key(b))
      : (a, b) => (value(key(a)) ?? -Infinity) - (value(key(b)) ?? -Infinity);
    rows.sort((a, b) => (ascending ? 1 : -1) * compare(a, b));
    table.tBodies[0].append(...rows);
  };
  for (const table of all("table.data")) {
    if (table.tBodies[0].rows.length < 3) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", { type: "button", textContent: head.textContent, title: "Sort by this column" });
      head.replaceChildren(button);
      button.onclick = () => {
        const ascending = head.ariaSort === "descending";
        for (const cell of head.parentNode.cells) cell.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sort(table, column, ascending);
      };
    });
  }

  // A box that shows only the sentences with a word.
  for (const list of all(".filter")) {
    const sections = all("section", list);
    if (sections.length < 5) continue;
    const box = make("input", { type: "search", placeholder: "word or number" });
    const count = make("output", { textContent: ` ${sections.length} sentences` });
    const label = make("label", { className: "note", textContent: "Show sentences with " });
    label.append(box, count);
    list.before(label);
    box.oninput = () => {
      for (const section of sections) {
        section.hidden = !section.textContent.toLowerCase().includes(box.value.toLowerCase());
      }
      count.textContent = ` ${sections.filter(section => !section.hidden).length} of ${sections.length} sentences`;
    };
  }
})();
