// Draws the figures of a report, hides and shows methods, sorts tables, switches the theme.
"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const charts = data.charts.map((chart) => {
    const figure = document.getElementById(chart.name);
    return { ...chart, figure, plot: figure.querySelector(".plot"), hidden: new Set() };
  });
  const chartOf = (element) => charts.find((chart) => chart.figure.contains(element));

  const element = (tag, text = "", attributes = {}) => {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };

  const shown = (number, digits = 4) => {
    const size = Math.abs(number);
    if (size && (size < 1e-4 || size >= 1e9)) return minus(number.toExponential(digits - 1));
    const whole = Number.isInteger(number) || size >= 10 ** digits;
    const format = whole
      ? { maximumFractionDigits: 0 }
      : { minimumSignificantDigits: digits, maximumSignificantDigits: digits };
    return minus(number.toLocaleString("en", format));
  };
  const minus = (text) => text.replace("-", "\u2212");
  const withSpread = (point) =>
    shown(point.y) + (point.spread == null ? "" : " \u00b1 " + shown(point.spread, 2));

  // --- figures ---

  const sizeOf = (chart) => {
    const width = chart.plot.clientWidth;
    if (!chart.square) return [width, Math.round(Math.min(Math.max(width * 0.7, 250), 420))];
    const { left, right } = chart.spec.padding;
    const side = Math.min(width, 480) - left - right;
    return [side, side];
  };

  const draw = (chart) => {
    chart.drawn ??= (async () => {
      const [width, height] = sizeOf(chart);
      chart.size = width;
      const { view } = await vegaEmbed(
        chart.plot,
        { ...chart.spec, width, height },
        {
          mode: "vega-lite",
          renderer: "svg",
          config: data.config,
          actions: false, // they lead out of the page
          ast: true, // without eval, which the page's policy forbids
          defaultStyle: false,
          tooltip: (_, event, item, point) => showTip(chart, event, point),
        },
      );
      chart.view = view;
      if (chart.hidden.size) await redraw(chart);
    })();
    return chart.drawn;
  };

  // What is left fills the figure; an empty one keeps its axes.
  const redraw = async (chart) => {
    if (!chart.view) return;
    chart.view.signal("hidden", [...chart.hidden]);
    const points = chart.spec.data.values.filter((point) => !chart.hidden.has(point.series));
    if (points.length && !chart.square) {
      const low = Math.min(...points.map((point) => point.low ?? point.y));
      const high = Math.max(...points.map((point) => point.high ?? point.y));
      const room = low < high ? 0 : Math.abs(low) / 2 || 1;
      chart.view.signal("reach", [low - room, high + room]);
    }
    await chart.view.runAsync();
  };

  const resize = (chart) => {
    const [width, height] = sizeOf(chart);
    if (!chart.view || width === chart.size || width <= 0) return;
    chart.size = width;
    chart.view.width(width).height(height).runAsync();
  };

  // --- what is under the pointer ---

  const tip = document.getElementById("tip");
  const showTip = (chart, event, point) => {
    tip.hidden = !point;
    if (!point) return;
    const head = element("b");
    const button = [...chart.figure.querySelectorAll("[data-series]")].find(
      (each) => each.dataset.series === point.series,
    );
    if (button) head.append(...[...button.childNodes].map((node) => node.cloneNode(true)));
    const list = element("dl");
    list.append(element("dt", chart.x), element("dd", shown(point.x)));
    list.append(element("dt", chart.y), element("dd", withSpread(point)));
    tip.replaceChildren(head, list);
    const { width, height } = tip.getBoundingClientRect();
    const beyond = event.clientX + 16 + width > innerWidth;
    const left = beyond ? event.clientX - 16 - width : event.clientX + 16;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${Math.min(Math.max(event.clientY - height - 12, 4), innerHeight - height - 4)}px`;
  };
  addEventListener("scroll", () => (tip.hidden = true), { passive: true });

  // --- legends ---

  const press = (legend, name, on) => {
    for (const button of legend.querySelectorAll("[data-series]"))
      if (button.dataset.series === name) button.setAttribute("aria-pressed", on);
  };
  const show = (chart, name, on) => {
    chart.hidden[on ? "delete" : "add"](name);
    press(chart.figure, name, on);
  };
  const methods = document.getElementById("methods");
  const showEverywhere = (names, on) => {
    for (const name of names) press(methods, name, on);
    for (const chart of charts.filter((each) => !each.square)) {
      for (const name of names) show(chart, name, on);
      redraw(chart);
    }
  };
  const everyMethod = [...methods.querySelectorAll("[data-series]")].map((b) => b.dataset.series);

  // --- tables ---

  const missing = (cell) => "none" in cell.dataset;
  const order = (one, two) => {
    if ("value" in one.dataset && "value" in two.dataset)
      return Number(one.dataset.value) - Number(two.dataset.value);
    return one.textContent.localeCompare(two.textContent, "en", { numeric: true });
  };
  const sort = (head) => {
    const first = head.dataset.first ?? "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const direction = head.getAttribute("aria-sort") === first ? other : first;
    for (const each of head.parentElement.cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const body = head.closest("table").tBodies[0];
    const sign = direction === "ascending" ? 1 : -1;
    const at = head.cellIndex;
    const rows = [...body.rows].sort((one, two) => {
      const [a, b] = [one.cells[at], two.cells[at]];
      // What is missing comes last, whichever way.
      return missing(a) || missing(b) ? missing(a) - missing(b) : sign * order(a, b);
    });
    body.append(...rows);
  };

  const tabulate = (chart) => {
    const spread = chart.spec.data.values.some((point) => point.spread != null);
    const titles = [chart.square ? "group" : "method", chart.x, chart.y];
    if (spread) titles.push("\u00b1");
    const head = element("tr");
    titles.forEach((title, at) => {
      const cell = element("th", "", { scope: "col", class: at ? "number" : "" });
      cell.append(element("button", title, { type: "button" }));
      head.append(cell);
    });
    const number = (value) =>
      value == null
        ? element("td", "\u2013", { class: "number", "data-none": "" })
        : element("td", shown(value), { class: "number", "data-value": value });
    const body = element("tbody");
    for (const point of chart.spec.data.values) {
      const row = element("tr");
      row.append(element("th", point.series, { scope: "row" }), number(point.x), number(point.y));
      if (spread) row.append(number(point.spread));
      body.append(row);
    }
    const table = element("table");
    table.append(element("thead"), body);
    table.tHead.append(head);
    return table;
  };

  // --- pictures ---

  // The picture that is shown, with its title and legend, as a file of its own.
  const picture = async (chart) => {
    const style = getComputedStyle(root);
    const svg = new DOMParser().parseFromString(await chart.view.toSVG(), "image/svg+xml");
    const inner = svg.documentElement;
    const make = (tag, attributes, text = "") => {
      const made = svg.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      made.textContent = text;
      return made;
    };
    const [chartWidth, chartHeight] = ["width", "height"].map((side) => +inner.getAttribute(side));
    const buttons = [...chart.figure.querySelectorAll("[data-series][aria-pressed=true]")];
    const width = chartWidth + 60 + Math.max(...buttons.map((each) => each.clientWidth), 0);
    const height = Math.max(chartHeight + 40, 56 + 20 * buttons.length);
    const font = { "font-family": "system-ui, sans-serif", "font-size": 12, fill: "var(--ink)" };
    const outer = make("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    outer.append(
      make("rect", { width, height, fill: "var(--paper)" }),
      make("text", { ...font, x: 12, y: 24, "font-weight": 600 },
        chart.figure.querySelector("h3").textContent),
    );
    inner.setAttribute("y", 36);
    outer.append(inner);
    buttons.forEach((button, at) => {
      const swatch = svg.importNode(button.querySelector("svg"), true);
      swatch.setAttribute("x", chartWidth + 12);
      swatch.setAttribute("y", 40 + 20 * at);
      const text = { ...font, x: chartWidth + 20 + +swatch.getAttribute("width"), y: 50 + 20 * at };
      outer.append(swatch, make("text", text, button.textContent));
    });
    const text = new XMLSerializer().serializeToString(outer);
    return text.replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim());
  };

  const save = async (chart, kind) => {
    await draw(chart);
    const svg = await picture(chart);
    let address = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
    if (kind === "png") {
      const image = new Image();
      image.src = address;
      await image.decode();
      const canvas = element("canvas");
      [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      address = canvas.toDataURL("image/png");
    }
    element("a", "", { href: address, download: `${chart.name}.${kind}` }).click();
  };

  // --- what the reader does ---

  const theme = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";
  const tellTheme = () => theme.setAttribute("aria-pressed", isDark());
  prefersDark.addEventListener("change", tellTheme);
  tellTheme();

  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("button");
    if (!button) return;
    if (button === theme) {
      root.dataset.theme = isDark() ? "light" : "dark";
      tellTheme();
    } else if (button.id === "all" || button.id === "none") {
      showEverywhere(everyMethod, button.id === "all");
    } else if ("series" in button.dataset) {
      const on = button.getAttribute("aria-pressed") !== "true";
      const chart = chartOf(button);
      if (!chart) return showEverywhere([button.dataset.series], on);
      show(chart, button.dataset.series, on);
      redraw(chart);
    } else if ("save" in button.dataset) {
      save(chartOf(button), button.dataset.save);
    } else if (button.parentElement.matches("thead th")) {
      sort(button.parentElement);
    }
  });

  for (const chart of charts)
    chart.figure.querySelector("details").addEventListener("toggle", ({ target }) => {
      const box = target.querySelector(".scroll");
      if (target.open && !box.firstChild) box.append(tabulate(chart));
    });

  // --- first what is in sight, then the rest ---

  const sight = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) draw(chartOf(entry.target));
    },
    { rootMargin: "300px" },
  );
  const room = new ResizeObserver((entries) => {
    for (const entry of entries) resize(chartOf(entry.target));
  });
  for (const chart of charts) {
    sight.observe(chart.plot);
    room.observe(chart.plot);
  }
  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 20));
  const drawRest = async () => {
    const next = charts.find((chart) => !chart.drawn);
    if (next) return draw(next).then(() => idle(drawRest));
    await Promise.all(charts.map((chart) => chart.drawn));
    root.dataset.drawn = charts.length;
  };
  idle(drawRest);
  addEventListener("beforeprint", () => charts.forEach(draw));
})();
