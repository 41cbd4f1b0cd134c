"use strict";
(() => {
  const main = document.getElementById("main"), results = document.getElementById("results"), state = document.getElementById("state");
  const most = Number(main.dataset.bytes), shown = 10;
  const percent = share => `${(100 * share).toFixed(1)}\u00a0%`;

  function element(tag, text, kind) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function bars(entries, kind) {
    const list = element("ul", undefined, "bar-list");
    for (const [name, value, active] of entries) {
      const item = element("li"), meter = element("meter");
      meter.value = value;
      meter.setAttribute("aria-label", `${kind} ${name}`);
      item.append(element("span", name, active ? "active-expert" : ""), meter, element("span", percent(value), "number"));
      list.append(item);
    }
    return list;
  }

  function warning(likeness) {
    const box = element("p", undefined, "warning");
    box.setAttribute("role", "alert");
    box.append(element("strong", "Unlike all training domains: do not rely on this class."),
      ` Its distance is ${likeness.distance.toFixed(3)}; ${percent(Number(main.dataset.accepted))} of the held-out training examples are within ${likeness.threshold.toFixed(3)}.`);
    return box;
  }

  function said(answer) {
    const box = element("div"), likeness = answer.likeness;
    box.append(element("p", `${answer.class} `, "said-class"), element("p", `probability ${percent(answer.probability)}`, "quiet"));
    if (likeness && likeness.unlike_training) box.append(warning(likeness));
    for (const text of answer.notes || []) box.append(element("p", text, "note"));
    const classes = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]);
    box.append(element("h3", "Probabilities", "apart"), bars(classes.slice(0, shown), "class"));
    if (classes.length > shown) box.append(element("p", `and ${classes.length - shown} more classes`, "caption"));
    if (answer.experts) {
      const active = new Set(answer.active_experts);
      box.append(element("h3", `Active experts: ${answer.active_experts.join(", ")}`, "apart"),
        bars(answer.experts.map((weight, place) => [`expert ${place + 1}`, weight, active.has(place + 1)]), "weight of"));
    }
    if (likeness) {
      const right = main.dataset.nearest;
      box.append(element("h3", `Nearest training domain: ${likeness.nearest_domain}`, "apart"));
      if (right) box.append(element("p", `Right for ${percent(Number(right))} of held-out training examples.`, "caption"));
    }
    return box;
  }

  function failed(text) {
    const box = element("p", text, "failed");
    box.setAttribute("role", "alert");
    return box;
  }

  async function ask(body, type) {
    if (body.size > most) throw new Error(`The file exceeds the limit of ${most / 1e6} MB for a request; send a smaller one.`);
    let reply;
    try {
      reply = await fetch("predict", {method: "POST", headers: {"Content-Type": type}, body});
    } catch {
      throw new Error("The service cannot be reached; it may have been stopped.");
    }
    const values = await reply.json();
    if (!reply.ok) throw new Error(values.error);
    return values.predictions;
  }

  async function classify(body, type, picture) {
    const box = element("div", undefined, picture ? "result" : "");
    if (picture) box.append(picture);
    results.prepend(box);
    state.textContent = "Classifying…";
    try {
      const answers = await ask(body, type);
      answers.forEach((answer, place) => {
        const one = said(answer);
        if (!picture) {
          one.className = "result rowed";
          if (answers.length > 1) one.firstChild.prepend(`Row ${place + 1}: `);
        }
        box.append(one);
      });
      state.textContent = "";
    } catch (error) {
      box.append(failed(error.message));
      state.textContent = "";
    }
  }

  function pictures(files) {
    results.replaceChildren();
    for (const file of [...files].reverse()) {
      const picture = element("img");
      picture.src = URL.createObjectURL(file);
      picture.alt = file.name;
      picture.onload = () => URL.revokeObjectURL(picture.src);
      classify(file, file.type.startsWith("image/") ? file.type : "application/octet-stream", picture);
    }
  }

  // One row as name=value pairs becomes a table of one row.
  function table(text) {
    const lines = text.trim().split(/\r?\n/);
    const pairs = lines.join(",").split(/[,;]/).map(part => part.trim()).filter(Boolean);
    if (!pairs.length || !pairs.every(part => part.includes("="))) return text.trim() + "\n";
    const quoted = values => values.map(value => `"${value.trim().replaceAll('"', '""')}"`).join(",");
    return [pairs.map(part => part.slice(0, part.indexOf("="))), pairs.map(part => part.slice(part.indexOf("=") + 1))].map(quoted).join("\n");
  }

  if (main.dataset.inputs === "images") {
    const drop = document.getElementById("drop"), file = document.getElementById("file");
    file.addEventListener("change", () => { pictures(file.files); file.value = ""; });
    // Not every browser opens the dialog on Enter.
    file.addEventListener("keydown", event => { if (event.key === "Enter") { event.preventDefault(); file.click(); } });
    document.addEventListener("dragover", event => { event.preventDefault(); drop.classList.add("over"); });
    document.addEventListener("dragleave", () => drop.classList.remove("over"));
    document.addEventListener("drop", event => {
      event.preventDefault();
      drop.classList.remove("over");
      pictures(event.dataTransfer.files);
    });
  } else {
    document.getElementById("form").addEventListener("submit", event => {
      event.preventDefault();
      results.replaceChildren();
      classify(new Blob([table(document.getElementById("rows").value)]), "text/csv");
    });
  }
})();
