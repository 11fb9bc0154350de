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

  // A click on a word of a classified text hides it: the probability of the label is shown before → after.
  const hide = word => {
    const text = word.parentNode, label = text.parentNode.querySelector(".likeliest");
    const hidden = word.ariaPressed !== "true";
    for (const other of all("[data-after]", text)) other.setAttribute("aria-pressed", other === word && hidden);
    const value = label.querySelector("span"), before = value.dataset.before ??= value.textContent;
    const after = Number(word.dataset.after);
    value.textContent = hidden ? `${before} → ${(100 * after).toFixed(1)} %` : before;
    label.style.setProperty("--after", hidden ? after : "var(--w)");
  };
  document.addEventListener("click", event => {
    const word = event.target.closest("[data-after]");
    if (word) hide(word);
  });
  document.addEventListener("keydown", event => {
    if (!event.target.matches("[data-after]") || ![" ", "Enter"].includes(event.key)) return;
    event.preventDefault();
    hide(event.target);
  });

  // A click on the head of a column sorts the rows: by value, or by text.
  const value = text => {
    const number = text.replace(/,/g, "").replace("−", "-").match(/-?\d+(\.\d+)?(e[+-]?\d+)?/i);
    return number ? Number(number[0]) : null;
  };
  const sort = (table, column, ascending) => {
    const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
    const rows = all("tbody tr", table);
    const isText = table.tHead.rows[0].cells[column].classList.contains("key") && rows.some(row => !/^[-−]?\d/.test(key(row)));
    const compare = isText
      ? (a, b) => key(a).localeCompare(key(b), undefined, { numeric: true })
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

  // A box that shows only the sentences with a word, and a list of orders. The attribute data-order
  // has the sorting key of the sentence in each order, smallest first.
  for (const list of all(".filter")) {
    const sections = all("section", list);
    if (sections.length < 5) continue;
    const box = make("input", { type: "search", placeholder: "word or number" });
    const count = make("output", { textContent: ` ${sections.length} sentences` });
    const label = make("label", { className: "note", textContent: "Show sentences with " });
    label.append(box, count);
    const tools = make("div", { className: "tools" });
    tools.append(label);
    list.before(tools);
    const keys = new Map(sections.map(section => [section, JSON.parse(section.dataset.order || "{}")]));
    const orders = make("select", {});
    orders.append(...["gains, then losses", ...Object.keys(keys.get(sections[0]))].map(name => new Option(name)));
    const order = make("label", { className: "note", textContent: "Order " });
    order.append(orders);
    tools.append(order);
    orders.onchange = () => {
      const key = section => keys.get(section)[orders.value] ?? 0;
      list.append(...[...sections].sort((a, b) => key(a) - key(b)));
    };
    box.oninput = () => {
      for (const section of sections) {
        section.hidden = !section.textContent.toLowerCase().includes(box.value.toLowerCase());
      }
      count.textContent = ` ${sections.filter(section => !section.hidden).length} of ${sections.length} sentences`;
    };
  }
})();
