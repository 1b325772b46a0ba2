// The map of all hosts: a canvas for each cell, a square for each host. Ten thousand are filtered and drawn anew with
// each letter that is typed.
"use strict";
(() => {
	const map = document.getElementById("map");
	if (!map) return;
	const get = id => document.getElementById(id);
	const q = get("q"), cellChoice = get("cell"), stateChoice = get("state"), colour = get("colour");
	const fields = get("fields"), says = get("mapsays"), tip = get("maptip"), rows = get("hostrows"), key = get("mapkey");
	const mostRows = 100;
	let d = null, text = [], chosen = null, areas = [], here = -1, tag = "", paint = null;

	const tones = { open: "good", closed: "off", draining: "warn", silent: "bad", fenced: "dim" };
	const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
	const palette = () => ({ use: [0, 1, 2, 3, 4, 5].map(i => css("--use-" + i)), dim: css("--line"), leaf: css("--use-3"),
		wheat: css("--wheat-mark"), barn: css("--barn"), slate: css("--slate"), off: css("--line-strong"),
		ink: css("--ink"), ground: css("--ground") });

	const step = share => share <= 0 ? 0 : Math.min(5, 1 + Math.floor(share * 4.999));
	const ways = {
		cpu: { of: i => paint.use[step(d.used[i] / d.cpus[i])], key: () => ramp("of CPUs") },
		memory: { of: i => paint.use[step(d.held[i] / d.memory[i])], key: () => ramp("of memory") },
		state: { of: i => stateColour(d.states[d.state[i]]), key: () => d.states.map(s => [stateColour(s), s]) },
		warnings: { of: i => d.warnings[i] === 0 ? paint.use[1] : d.warnings[i] === 1 ? paint.wheat : paint.barn,
			key: () => [[paint.use[1], "none"], [paint.wheat, "one"], [paint.barn, "more"]] },
		seen: { of: i => ageColour(d.seen[i]), key: () => [[paint.use[3], "under a minute"], [paint.use[1], "minutes"],
			[paint.wheat, "an hour"], [paint.barn, "longer, or never"]] },
	};
	const ramp = what => [[paint.use[0], "none " + what]].concat([1, 2, 3, 4, 5].map(i => [paint.use[i], "to " + i * 20 + " %"]));
	const stateColour = s => ({ open: paint.leaf, closed: paint.off, draining: paint.wheat, silent: paint.barn, fenced: paint.slate })[s];
	const ageColour = at => {
		const age = Date.now() / 1000 - at;
		return age < 70 ? paint.use[3] : age < 600 ? paint.use[1] : age < 3600 ? paint.wheat : paint.barn;
	};

	const choose = () => {
		const words = q.value.toLowerCase().split(/\s+/).filter(w => w !== "");
		const cell = cellChoice.value === "" ? -1 : d.cells.indexOf(cellChoice.value);
		const state = stateChoice.value === "" ? -1 : d.states.indexOf(stateChoice.value);
		const anyCell = cellChoice.value === "", anyState = stateChoice.value === "";
		let n = 0;
		for (let i = 0; i < text.length; i++) {
			let ok = (anyCell || d.cell[i] === cell) && (anyState || d.state[i] === state);
			for (let w = 0; ok && w < words.length; w++) ok = text[i].includes(words[w]);
			chosen[i] = ok ? 1 : 0;
			n += chosen[i];
		}
		return n;
	};

	// squares are as large as lets all of them be seen at once
	const lay = () => {
		const width = fields.clientWidth, total = text.length;
		let size = 20;
		const height = Math.max(240, innerHeight * 0.5);
		while (size > 5 && total * size * size > width * height * 0.8) size--;
		areas = [];
		const counts = d.cells.map(() => 0);
		for (let i = 0; i < total; i++) counts[d.cell[i]]++;
		fields.textContent = "";
		let first = 0;
		d.cells.forEach((name, c) => {
			const n = counts[c];
			const most = Math.max(1, Math.floor(width / size));
			const columns = Math.min(most, Math.max(Math.ceil(Math.sqrt(n * 3)), Math.min(n, 12)));
			const area = { first, n, columns, size, name, lines: Math.ceil(n / columns) };
			const box = document.createElement("div"), head = document.createElement("h2"), count = document.createElement("span");
			box.className = "field";
			head.textContent = name + " ";
			count.textContent = n;
			head.append(count);
			area.canvas = document.createElement("canvas");
			const scale = devicePixelRatio || 1;
			area.canvas.width = columns * size * scale;
			area.canvas.height = area.lines * size * scale;
			area.canvas.style.width = columns * size + "px";
			area.canvas.style.height = area.lines * size + "px";
			area.canvas.tabIndex = 0;
			area.canvas.dataset.keys = "";
			area.canvas.setAttribute("role", "img");
			area.canvas.setAttribute("aria-label", "Hosts of cell " + name + ": arrow keys go from host to host, Enter opens one");
			area.pen = area.canvas.getContext("2d");
			area.pen.scale(scale, scale);
			area.image = area.pen.createImageData(Math.max(1, area.canvas.width), Math.max(1, area.canvas.height)); // a cell may have none
			area.points = new Uint32Array(area.image.data.buffer);
			listen(area);
			box.append(head, area.canvas);
			fields.append(box);
			areas.push(area);
			first += n;
		});
	};

	// ten thousand rectangles are slow to draw one by one, and all of them change with a letter: pixels are not
	const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true }), pixels = new Map();
	const pixel = css => {
		let value = pixels.get(css);
		if (value === undefined) {
			probe.fillStyle = css;
			probe.clearRect(0, 0, 1, 1);
			probe.fillRect(0, 0, 1, 1);
			value = new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
			pixels.set(css, value);
		}
		return value;
	};
	const draw = () => {
		const colourOf = ways[colour.value].of, scale = devicePixelRatio || 1, dim = pixel(paint.dim);
		for (const a of areas) {
			const gap = a.size > 7 ? 2 : 1, side = a.size - gap, wide = a.image.width;
			a.points.fill(0);
			for (let k = 0; k < a.n; k++) {
				const i = a.first + k, on = chosen[i], value = on ? pixel(colourOf(i)) : dim;
				const inset = on ? 0 : side / 2 - 1, edge = on ? side : 2;
				const x = Math.round((k % a.columns * a.size + inset) * scale), end = x + Math.round(edge * scale);
				const y = Math.round((Math.floor(k / a.columns) * a.size + inset) * scale), last = y + Math.round(edge * scale);
				for (let line = y * wide; line < last * wide; line += wide) a.points.fill(value, line + x, line + end);
			}
			a.pen.putImageData(a.image, 0, 0);
			if (here >= a.first && here < a.first + a.n) {
				const k = here - a.first;
				a.pen.strokeStyle = paint.ink;
				a.pen.lineWidth = 2;
				a.pen.strokeRect(k % a.columns * a.size, Math.floor(k / a.columns) * a.size, side, side);
			}
		}
	};

	const ago = at => {
		if (at === 0) return "never";
		const s = Math.max(0, Date.now() / 1000 - at);
		return s < 120 ? Math.round(s) + " s" : s < 7200 ? Math.round(s / 60) + " min" : s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
	};
	const gib = mib => mib >= 10240 ? Math.round(mib / 1024) + "G" : mib + "M";
	const about = i => d.name[i] + "\n" + d.states[d.state[i]] + " · " + d.kinds[d.kind[i]] + "\n" +
		d.used[i] + " of " + d.cpus[i] + " CPUs · " + gib(d.held[i]) + " of " + gib(d.memory[i]) + "\n" +
		d.vms[i] + " VMs · heard of " + ago(d.seen[i]) + (d.seen[i] ? " ago" : "") +
		(d.warnings[i] ? " · " + d.warnings[i] + " findings" : "");

	const cellOf = (cls, label, value) => {
		const td = document.createElement("td");
		if (cls) td.className = cls;
		if (label) td.dataset.label = label;
		td.textContent = value;
		return td;
	};
	const ns = "http://www.w3.org/2000/svg";
	const barOf = share => {
		const svg = document.createElementNS(ns, "svg"), rect = document.createElementNS(ns, "rect");
		svg.setAttribute("class", "bar");
		svg.setAttribute("viewBox", "0 0 100 1");
		svg.setAttribute("preserveAspectRatio", "none");
		svg.setAttribute("aria-hidden", "true");
		rect.setAttribute("class", "held");
		rect.setAttribute("width", Math.min(100, Math.round(share * 100)) || 0);
		rect.setAttribute("height", 1);
		svg.append(rect);
		return svg;
	};
	const rowOf = i => {
		const tr = document.createElement("tr"), st = cellOf("st", "", ""), mark = document.createElement("span");
		const name = cellOf("name", "", ""), link = document.createElement("a");
		mark.className = "state " + tones[d.states[d.state[i]]];
		mark.textContent = d.states[d.state[i]];
		st.append(mark);
		link.href = "/hosts/" + encodeURIComponent(d.name[i]);
		link.textContent = d.name[i];
		name.append(link);
		const cpu = cellOf("withbar", "CPUs", d.used[i] + " of " + d.cpus[i]);
		cpu.append(barOf(d.used[i] / d.cpus[i]));
		const ram = cellOf("withbar", "memory", gib(d.held[i]) + " of " + gib(d.memory[i]));
		ram.append(barOf(d.held[i] / d.memory[i]));
		tr.append(st, name, cellOf("", "", d.cells[d.cell[i]]), cellOf("", "", d.kinds[d.kind[i]]), cellOf("num", "VMs", d.vms[i]),
			cpu, ram, cellOf("num", "findings", d.warnings[i] || ""), cellOf("num", "heard of", ago(d.seen[i])));
		return tr;
	};

	let later = 0;
	const list = () => {
		clearTimeout(later);
		later = setTimeout(() => {
			const some = [];
			for (let i = 0; i < chosen.length && some.length < mostRows; i++) if (chosen[i]) some.push(rowOf(i));
			rows.replaceChildren(...some);
			const parts = get("parts");
			if (parts) parts.hidden = true;
		}, 300); // when nobody types: a hundred rows take longer than a letter may
	};

	const show = rowsToo => {
		const n = choose();
		draw();
		says.textContent = n === text.length ? n + " hosts" : n + " of " + text.length + " hosts";
		get("chosen").textContent = n > mostRows ? n + " chosen, the first " + mostRows : n + " chosen";
		if (rowsToo) list();
	};
	const legend = () => {
		key.replaceChildren(...ways[colour.value].key().map(([c, words]) => {
			const span = document.createElement("span"), box = document.createElement("i");
			box.style.background = c;
			span.append(box, words);
			return span;
		}));
	};

	const point = (a, i, x, y) => {
		here = i;
		draw();
		if (i < 0) { tip.hidden = true; return; }
		const k = i - a.first, at = a.canvas.getBoundingClientRect(), top = map.getBoundingClientRect();
		tip.textContent = about(i);
		tip.hidden = false;
		const left = at.left - top.left + (x ?? k % a.columns * a.size) + 14, width = tip.offsetWidth;
		tip.style.left = Math.max(0, Math.min(left, top.width - width)) + "px";
		tip.style.top = at.top - top.top + (y ?? Math.floor(k / a.columns) * a.size) + 16 + "px";
	};
	const listen = a => {
		const under = e => {
			const k = Math.floor(e.offsetY / a.size) * a.columns + Math.floor(e.offsetX / a.size);
			return k < a.n && e.offsetX < a.columns * a.size ? a.first + k : -1;
		};
		a.canvas.addEventListener("pointermove", e => point(a, under(e), e.offsetX, e.offsetY));
		a.canvas.addEventListener("pointerleave", () => point(a, -1));
		a.canvas.addEventListener("click", e => open(under(e)));
		a.canvas.addEventListener("focus", () => { if (here < a.first || here >= a.first + a.n) point(a, a.first); });
		a.canvas.addEventListener("blur", () => point(a, -1));
		a.canvas.addEventListener("keydown", e => {
			const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -a.columns, ArrowDown: a.columns }[e.key];
			if (e.key === "Enter") open(here);
			if (by === undefined) return;
			e.preventDefault();
			const to = here + by;
			if (to >= a.first && to < a.first + a.n) {
				point(a, to);
				says.textContent = about(to).replaceAll("\n", ", ");
			}
		});
	};
	const open = i => { if (i >= 0) location.assign("/hosts/" + encodeURIComponent(d.name[i])); };

	let signedOut = false;
	const load = async () => {
		const answer = await fetch(map.dataset.src, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
		if (answer.status === 304) return;
		if (answer.status === 401) { signedOut = true; return; }
		if (!answer.ok) throw new Error(answer.status);
		const next = await answer.json();
		tag = answer.headers.get("ETag") || "";
		const same = d && d.name.length === next.name.length && d.cells.join() === next.cells.join() &&
			d.cell.every((c, i) => c === next.cell[i]);
		const first = d === null;
		d = next;
		text = d.name.map((n, i) => (n + " " + d.cells[d.cell[i]] + " " + d.kinds[d.kind[i]] + " " + d.states[d.state[i]]).toLowerCase());
		chosen = new Uint8Array(text.length);
		map.hidden = text.length === 0;
		if (!same) lay();
		legend();
		show(!first || q.value !== "");
	};
	const fresh = () => { paint = palette(); if (d) { legend(); draw(); } };

	paint = palette();
	q.addEventListener("input", () => show(true));
	for (const choice of [cellChoice, stateChoice]) choice.addEventListener("change", () => show(true));
	colour.addEventListener("change", fresh);
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fresh);
	get("farmfilter").addEventListener("submit", e => { if (d) { e.preventDefault(); show(true); } });
	let width = innerWidth;
	addEventListener("resize", () => { if (d && innerWidth !== width) { width = innerWidth; lay(); draw(); } });
	const stale = get("stale");
	const again = async () => {
		if (!document.hidden) {
			try {
				await load();
				if (signedOut) {
					stale.textContent = "You are signed out: load the page again to sign in.";
					stale.hidden = false;
					return;
				}
				stale.hidden = true;
			} catch {
				stale.textContent = "The server does not answer: the map may be old. Trying again.";
				stale.hidden = false;
			}
		}
		setTimeout(again, 5000);
	};
	again();
})();
