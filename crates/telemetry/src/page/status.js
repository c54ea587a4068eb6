"use strict";
(() => {
  const EVERY_MS = 2000;
  const NOT_KNOWN = "–";

  // As `Format` in format.rs; a test compares the two.
  const threeDigits = (x) => x.toFixed(x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
  const grouped = (x) => x.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",");
  const scaled = (x, unit) => {
    const prefixes = ["", "k", "M", "G", "T"];
    let step = 0;
    while (x >= 999.5 && step + 1 < prefixes.length) { x /= 1000; step += 1; }
    return step === 0 ? `${x.toFixed(0)} ${unit}` : `${threeDigits(x)} ${prefixes[step]}${unit}`;
  };
  const seconds = (x) => {
    if (x === 0) return "0 s";
    if (x < 999.5e-6) return `${threeDigits(x * 1e6)} µs`;
    if (x < 0.9995) return `${threeDigits(x * 1e3)} ms`;
    if (x < 59.95) return `${threeDigits(x)} s`;
    const whole = Math.round(x), parts = (one, unit, two, smaller) =>
      `${Math.floor(whole / one)} ${unit} ${Math.floor((whole % one) / two)} ${smaller}`;
    if (whole < 3600) return parts(60, "min", 1, "s");
    if (whole < 86400) return parts(3600, "h", 60, "min");
    return parts(86400, "d", 3600, "h");
  };
  const numbers = {
    text: String,
    state: String,
    count: grouped,
    rate: (x) => (x === 0 || x >= 9.95 ? grouped(x) : x.toFixed(1)),
    bits: (x) => scaled(x, "bit/s"),
    bytes: (x) => scaled(x, "B"),
    seconds,
    share: (x) => (x === 0 || x >= 0.0995 ? `${(x * 100).toFixed(0)} %` : `${(x * 100).toFixed(1)} %`),
  };
  const write = (format, value) => {
    if (value === null || value === undefined) return NOT_KNOWN;
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value === "string") return value;
    if (typeof value !== "number" || !Number.isFinite(value) || value < 0) return NOT_KNOWN;
    return numbers[format](value);
  };

  const element = (id) => document.getElementById(id);
  const tables = [...document.querySelectorAll("table[data-key]")].map((table) => ({
    key: table.dataset.key,
    body: table.tBodies[0],
    empty: table.closest("section").querySelector(".empty"),
    columns: [...table.tHead.rows[0].cells].map((cell) => ({
      cell, key: cell.dataset.key, format: cell.dataset.format, className: cell.className,
    })),
    order: null,
    rows: [],
  }));

  const compare = (a, b) => {
    const known = (x) => x !== null && x !== undefined;
    if (known(a) !== known(b)) return known(a) ? 1 : -1;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sorted = (table) => {
    if (!table.order) return table.rows;
    const { key, descending } = table.order;
    return [...table.rows].sort((a, b) => compare(a[key], b[key]) * (descending ? -1 : 1));
  };
  // Cells are written anew only where they changed: what a reader has selected stays so.
  const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const fill = (table) => {
    const rows = sorted(table);
    while (table.body.rows.length > rows.length) table.body.deleteRow(-1);
    rows.forEach((row, index) => {
      const line = table.body.rows[index] || table.body.insertRow();
      table.columns.forEach((column, at) => {
        let cell = line.cells[at];
        if (!cell) {
          cell = document.createElement(at === 0 ? "th" : "td");
          if (at === 0) cell.scope = "row";
          cell.className = column.className;
          line.append(cell);
        }
        const text = write(column.format, row[column.key]);
        set(cell, text);
        if (column.format === "state") cell.dataset.state = text;
      });
    });
    table.empty.hidden = rows.length > 0;
  };
  const sortBy = (table, column) => {
    const same = table.order && table.order.key === column.key;
    // Numbers are looked at from the top.
    const descending = same ? !table.order.descending : !["text", "state"].includes(column.format);
    table.order = { key: column.key, descending };
    for (const other of table.columns) other.cell.removeAttribute("aria-sort");
    column.cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
    fill(table);
  };
  for (const table of tables) {
    for (const column of table.columns) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = column.cell.textContent;
      button.addEventListener("click", () => sortBy(table, column));
      column.cell.replaceChildren(button);
    }
  }

  const show = (status) => {
    const readiness = element("readiness");
    set(readiness, String(status.readiness ?? ""));
    readiness.dataset.ready = String(status.ready);
    readiness.dataset.degraded = String(status.degraded);
    for (const fact of document.querySelectorAll("dd[data-key]")) {
      set(fact, write(fact.dataset.format, status[fact.dataset.key]));
    }
    for (const table of tables) {
      table.rows = Array.isArray(status[table.key]) ? status[table.key] : [];
      fill(table);
    }
    set(element("problem"), "");
    document.body.classList.remove("stale");
    element("updated").textContent = `Updated ${new Date().toLocaleTimeString()}`;
  };
  const fail = (reason) => {
    set(element("problem"), `No new figures: ${reason}. Trying again.`);
    document.body.classList.add("stale");
  };

  // Drawn by the program: taken from a new page, in which nothing runs.
  const PLOTS_EVERY_MS = 10000;
  let drawn = Date.now();
  const redraw = async () => {
    const old = element("plots");
    if (!old || Date.now() - drawn < PLOTS_EVERY_MS) return;
    const response = await fetch("./", { cache: "no-store", signal: AbortSignal.timeout(15000) });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const plots = page.getElementById("plots");
    if (!plots || paused) return;
    old.replaceWith(document.adoptNode(plots));
    drawn = Date.now();
  };

  let paused = false;
  const refresh = async () => {
    try {
      const response = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(15000) });
      const status = await response.json();
      if (!response.ok) throw new Error(status.error || `the program answers ${response.status}`);
      if (!paused) show(status);
      await redraw();
    } catch (error) {
      fail(error instanceof Error ? error.message : String(error));
    }
  };
  const pause = element("pause");
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) refresh();
  });
  // One question at a time, however slow the answers are; none while nobody looks.
  const watch = async () => {
    if (!paused && !document.hidden) await refresh();
    setTimeout(watch, EVERY_MS);
  };
  watch();
})();
