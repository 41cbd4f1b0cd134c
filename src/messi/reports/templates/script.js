// Optional behaviour of a page: sort tables, show the value under the pointer, copy text.
(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Tables: a button in every head; numbers start with the highest, texts with the first, and missing values stay last.
  const order = new Intl.Collator("en", { numeric: true });
  const NUMBER = /^[-\u2212]?\d[\d.]*(e[-+]?\d+)?(?=\s|$)/;
  const text = (row, column) => (row.cells[column].dataset.value ?? row.cells[column].innerText.trim()) || "–";
  const number = (value) => Number((value.match(NUMBER) || ["NaN"])[0].replace("\u2212", "-"));

  function sort(head) {
    const bodies = [...head.closest("table").tBodies];
    const column = head.cellIndex;
    const values = new Map(bodies.flatMap((body) => [...body.rows]).map((row) => [row, text(row, column)]));
    const present = [...values.values()].filter((value) => value !== "–");
    const numeric = 2 * present.filter((value) => NUMBER.test(value)).length > present.length;
    const before = head.getAttribute("aria-sort");
    const downward = before ? before === "ascending" : numeric;
    const sign = downward ? -1 : 1;
    const compare = (a, b) => numeric ? number(a) - number(b) : order.compare(a, b);
    const missing = (value) => value === "–" || (numeric && !NUMBER.test(value));
    const inOrder = (a, b) => {
      const [x, y] = [values.get(a), values.get(b)];
      return missing(x) - missing(y) || (missing(x) ? 0 : sign * compare(x, y));
    };
    all("th[aria-sort]", head.parentElement).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", downward ? "descending" : "ascending");
    for (const body of bodies) body.append(...[...body.rows].sort(inOrder));  // groups stay together
  }

  for (const head of all("table.sortable thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(head));
  }

  // Tooltips: a title becomes a box that touch and the keyboard can reach, too.
  const box = document.createElement("div");
  box.className = "tipbox";
  box.hidden = true;
  document.body.append(box);
  let shown = null;

  function hide() {
    if (shown) shown.classList.remove("shown");
    shown = null;
    box.hidden = true;
  }

  function show(item, x, y) {
    if (shown !== item) {
      hide();
      shown = item;
      item.classList.add("shown");
      box.textContent = item.dataset.tip;
      box.hidden = false;
    }
    const gap = 14;
    const left = x + gap + box.offsetWidth > innerWidth ? x - gap - box.offsetWidth : x + gap;
    const top = y + gap + box.offsetHeight > innerHeight ? y - gap - box.offsetHeight : y + gap;
    box.style.left = `${Math.max(4, Math.min(left, innerWidth - box.offsetWidth - 4))}px`;
    box.style.top = `${Math.max(4, top)}px`;
  }

  for (const item of all(".tip")) {
    const title = item.querySelector(":scope > title");
    item.dataset.tip = title ? title.textContent : item.title;
    item.setAttribute("aria-label", item.dataset.tip);
    if (title) {
      item.setAttribute("role", "img");
      title.remove();
    }
    item.removeAttribute("title");
  }

  const tipOf = (event) => event.target.closest ? event.target.closest(".tip") : null;
  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => {
      const item = tipOf(event);
      if (item) show(item, event.clientX, event.clientY);
      else if (shown !== document.activeElement || kind === "pointerdown") hide();
    });
  }
  function showBeside(item) {
    const place = item.getBoundingClientRect();
    show(item, place.left + place.width / 2, place.top + Math.min(place.height / 2, 40));
  }

  document.addEventListener("focusin", (event) => {
    const item = tipOf(event);
    if (item && item !== shown) showBeside(item);
  });
  document.addEventListener("focusout", hide);
  function follow() {
    if (shown && shown === document.activeElement) showBeside(shown);
    else if (shown && !shown.matches(":hover")) hide();
  }
  document.addEventListener("scroll", follow, { capture: true, passive: true });

  // The keyboard: the tab key reaches a chart, and the arrow keys move through its values.
  for (const group of all(".rove")) {
    const items = all(".tip", group);
    items.forEach((item, place) => item.setAttribute("tabindex", place ? "-1" : "0"));
    group.addEventListener("keydown", (event) => {
      const place = items.indexOf(document.activeElement);
      const row = Number(group.dataset.columns) || 1;
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[event.key];
      if (event.key === "Escape") hide();
      if (place < 0 || !step) return;
      event.preventDefault();
      const next = items[place + step];
      if (!next) return;
      items[place].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  // The legend of an embedding: pointing at an entry, or focusing it, dims all other points.
  for (const key of all(".embedding .keys li")) {
    const plots = key.closest(".embedding");
    const light = (on) => {
      plots.classList.toggle("picked", on);
      all(`.tip.${key.dataset.key}`, plots).forEach((mark) => mark.classList.toggle("lit", on));
    };
    key.tabIndex = 0;
    ["pointerenter", "focus"].forEach((kind) => key.addEventListener(kind, () => light(true)));
    ["pointerleave", "blur"].forEach((kind) => key.addEventListener(kind, () => light(false)));
  }

  // A button that copies text.
  for (const block of all("pre.copy")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copier";
    button.textContent = "Copy";
    block.after(button);
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(block);
      try {
        await navigator.clipboard.writeText(block.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // Printed pages cannot be unfolded, so everything is opened.
  addEventListener("beforeprint", () => all("details").forEach((part) => { part.open = true; }));
})();
