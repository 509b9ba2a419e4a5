"use strict";
// Draws the sweep from the figures embedded in the page, and shows tips on hover. It computes no figure and loads nothing;
// the texts of models and canaries are only ever inserted as text.
(() => {
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";

  const make = (name, attributes = {}, text = null, space = null) => {
    const made = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    return made;
  };
  const draw = (name, attributes, text = null) => make(name, attributes, text, SVG);

  const digits = (value) => (Math.abs(value) < 999.5 ? String(Number(value.toPrecision(3))) : value.toFixed(0));
  const show = (value, unit) => {
    if (unit === "s") {
      for (const [name, factor, below] of [["ms", 1e-3, 1], ["s", 1, 120], ["min", 60, 7200], ["h", 3600, Infinity]]) {
        if (Math.abs(value) < below) return `${digits(value / factor)} ${name}`;
      }
    }
    if (unit === "B") {
      for (const [name, factor] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
        if (Math.abs(value) >= factor) return `${digits(value / factor)} ${name}`;
      }
      return `${value.toFixed(0)} B`;
    }
    if (unit === "x") return `${value.toFixed(2)}x`;
    return unit === "1" ? digits(value) : `${digits(value)} ${unit}`;
  };

  const between = (lo, hi, unit) => {
    if (unit === "x") return `[${lo.toFixed(2)}, ${hi.toFixed(2)}]`;
    const [[low, below], [high, above]] = [lo, hi].map((value) => show(value, unit).split(" "));
    return below && below === above ? `[${low}, ${high}] ${above}` : `[${show(lo, unit)}, ${show(hi, unit)}]`;
  };

  // The tip.

  const place = (x, y) => {
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, window.innerWidth - width - 8))}px`;
    tip.style.top = `${y + 18 + height > window.innerHeight ? Math.max(8, y - height - 12) : y + 18}px`;
  };
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    place(x, y);
  };
  const hideTip = () => { tip.hidden = true; };

  document.addEventListener("pointerover", (event) => {
    const dot = event.target.closest("[data-tip]");
    if (dot) showTip(dot.dataset.tip, event.clientX, event.clientY);
    else if (!event.target.closest(".area")) hideTip();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  document.addEventListener("scroll", hideTip, { passive: true });

  // The charts of a soak share one cursor: it shows the time, and the host's values at it.

  const clock = (seconds) => show(seconds, "s");
  for (const lanes of document.querySelectorAll("[data-seconds]")) {
    const areas = [...lanes.querySelectorAll(".area")].map((area) => {
      const cursor = draw("line", { class: "cursor hidden", y1: 0, y2: area.getAttribute("height") });
      area.append(cursor);
      const { read, names, unit } = area.dataset;
      return { area, cursor, unit, points: read && JSON.parse(read), names: names && JSON.parse(names) };
    });
    const hide = () => { hideTip(); for (const { cursor } of areas) cursor.classList.add("hidden"); };
    lanes.addEventListener("pointermove", (event) => {
      const area = event.target.closest(".area");
      if (!area) { hide(); return; }
      const box = area.getBoundingClientRect();
      const at = Math.min(100, Math.max(0, (100 * (event.clientX - box.left)) / box.width));
      const lines = [clock((at / 100) * Number(lanes.dataset.seconds))];
      for (const { area: one, cursor, points, names, unit } of areas) {
        for (const end of ["x1", "x2"]) cursor.setAttribute(end, `${at}%`);
        cursor.classList.remove("hidden");
        if (!points) continue;
        const near = points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
        lines.push(`${one.getAttribute("aria-label")}: ${names ? names[near[1]] : show(near[1], unit)}`);
      }
      if (!event.target.closest("[data-tip]")) showTip(lines.join("\n"), event.clientX, event.clientY);
    });
    lanes.addEventListener("pointerleave", hide);
  }

  // Copy buttons, and details that open for a printer, but for files and the cells of objectives, which show their value.

  for (const text of document.querySelectorAll(".next code, footer code, main pre")) {
    const button = make("button", { type: "button", class: "copy" }, "Copy");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    });
    if (text.matches("pre")) text.before(button);
    else text.after(button);
  }
  window.addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = one.open || !one.matches(".cell, :has(pre)");
  });

  // The filter of the soaks by workload.

  const soak = document.getElementById("pick-soak");
  if (soak) {
    soak.addEventListener("change", () => {
      for (const one of document.querySelectorAll("[data-w]")) {
        one.classList.toggle("hidden", soak.value !== "" && one.dataset.w !== soak.value);
      }
    });
  }

  // The sweep.

  const target = document.getElementById("sweep");
  if (!target) return;
  const given = JSON.parse(document.getElementById("sweep-data").textContent);
  const [workload, knob, metric] = ["workload", "knob", "metric"].map((name) => document.getElementById(`pick-${name}`));
  const FIRST = 7; // the index of a row's first figure

  const offer = (select, options) => {
    for (const [value, text] of options) select.append(make("option", { value }, text));
  };
  offer(workload, given.workloads.map((name, number) => [number, name]));
  const moved = [...new Set(given.settings.flatMap((one) => one.moved))];
  offer(knob, [["", "all"], ...moved.map((name) => [name, name.replaceAll("_", " ")])]);
  offer(metric, given.metrics.map((one, number) => [number, one.name.replaceAll("_", " ")]));

  const ticks = (lo, hi) => {
    const rough = (hi - lo) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((by) => (hi - lo) / (power * by) <= 5);
    const found = [];
    for (let number = Math.ceil(lo / step); number * step <= hi; number += 1) found.push(number * step);
    return found;
  };

  const describe = (row) => {
    const [, setting, canary, repeat, tokens, text, fault] = row;
    const lines = [`${given.canaries[canary]}, repeat ${repeat + 1}`, given.settings[setting].label];
    given.metrics.forEach((one, number) => {
      const seen = row[FIRST + number];
      if (seen !== null) lines.push(`${one.name.replaceAll("_", " ").replace(" p95", "")}: ${show(seen, one.unit)}`);
    });
    if (tokens !== null) lines.push(`${tokens} tokens`);
    if (fault !== null) lines.push(`fault: ${given.texts[fault]}`);
    if (given.texts[text]) lines.push(`“${given.texts[text]}”`);
    return lines.join("\n");
  };

  const strip = (rows, number, seen, span, reference) => {
    const [lo, hi] = span;
    const at = (value) => `${((100 * (value - lo)) / (hi - lo)).toFixed(2)}%`;
    const svg = draw("svg", { width: "100%", height: 40, role: "img" });
    for (const tick of ticks(lo, hi)) svg.append(draw("line", { class: "grid", x1: at(tick), x2: at(tick), y1: 0, y2: 40 }));
    if (reference !== null) svg.append(draw("line", { class: "bound", x1: at(reference), x2: at(reference), y1: 0, y2: 40 }));
    rows.forEach((row, index) => {
      const y = 8 + 24 * ((index * 0.618034) % 1);
      const kind = given.settings[row[1]].arm === "plain" ? "plain" : "candidate";
      svg.append(draw("circle", { class: `dot ${kind}`, cx: at(row[FIRST + number]), cy: y.toFixed(1), r: 3, "data-tip": describe(row) }));
    });
    if (seen) {
      svg.append(draw("line", { class: "span", x1: at(seen[4]), x2: at(seen[5]), y1: 20, y2: 20 }));
      svg.append(draw("circle", { class: "center", cx: at(seen[3]), cy: 20, r: 4.5 }));
    }
    return svg;
  };

  const redraw = () => {
    hideTip();
    const mine = Number(workload.value);
    const number = Number(metric.value);
    const { unit, ratio } = given.metrics[number];
    const rows = given.rows.filter((row) => row[0] === mine && row[FIRST + number] !== null);
    const wanted = given.settings
      .map((one, index) => ({ ...one, index }))
      .filter((one) => knob.value === "" || one.moved.every((name) => name === knob.value))
      .map((one) => ({
        ...one,
        rows: rows.filter((row) => row[1] === one.index),
        seen: given.estimates.find((seen) => seen[0] === mine && seen[1] === one.index && seen[2] === number),
      }))
      .filter((one) => one.rows.length || one.seen);
    target.replaceChildren();
    if (!wanted.length) {
      target.append(make("p", { class: "dim" }, "No answer of this workload has this metric."));
      return;
    }
    const reference = ratio ? 1 : null;
    const values = wanted.flatMap((one) => [...one.rows.map((row) => row[FIRST + number]), ...(one.seen ? one.seen.slice(3, 6) : [])]);
    if (reference !== null) values.push(reference);
    const [least, most] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    const room = 0.04 * (most - least) || Math.abs(most) * 0.1 || 1;
    const span = [least - room, most + room];
    for (const one of wanted) {
      const row = make("div", { class: "row", "data-setting": one.name });
      const name = make("div", { class: "name" }, one.label);
      if (given.chosen[mine] === one.index) name.append(" ", make("b", {}, given.deployed[mine] ? "✓ deployed" : "chosen"));
      const value = make("div", { class: "value" });
      if (one.seen) {
        value.append(make("strong", {}, show(one.seen[3], unit)));
        if (one.seen[4] !== one.seen[5]) value.append(make("span", { class: "dim note" }, between(one.seen[4], one.seen[5], unit)));
      } else value.append(make("span", { class: "dim" }, "too few answers"));
      const chart = strip(one.rows, number, one.seen, span, reference);
      chart.setAttribute("aria-label", `${one.label}: ${one.rows.length} answers`);
      row.append(name, chart, value);
      target.append(row);
    }
    const foot = make("div", { class: "row foot" });
    const scale = draw("svg", { width: "100%", height: 18, "aria-hidden": "true" });
    for (const tick of ticks(...span)) {
      scale.append(draw("text", { x: `${((100 * (tick - span[0])) / (span[1] - span[0])).toFixed(2)}%`, y: 13, "text-anchor": "middle" }, unit === "x" ? `${digits(tick)}x` : show(tick, unit)));
    }
    foot.append(make("div", { class: "name dim" }), scale, make("div"));
    target.append(foot, make("p", { class: "dim note" }, `${given.metrics[number].description}.${given.ended[mine]}`));
  };
  for (const select of [workload, knob, metric]) select.addEventListener("change", redraw);
  redraw();
})();
