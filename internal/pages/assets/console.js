// The serial console of a VM, as a terminal: its bytes come and go by a WebSocket.
"use strict";
(() => {
	const box = document.getElementById("terminal"), link = document.getElementById("link");
	const again = document.getElementById("again"), leave = document.getElementById("leave");

	// The page's policy keeps styles that are written into a page from working, also those that xterm writes: on this page
	// its sheets become constructed ones, and attributes go by the object model.
	const create = document.createElement.bind(document), set = Element.prototype.setAttribute;
	const sheet = () => {
		const css = new CSSStyleSheet(), stand = create("span");
		document.adoptedStyleSheets.push(css);
		Object.defineProperty(stand, "textContent", { set: text => css.replaceSync(text) });
		stand.remove = () => { document.adoptedStyleSheets = document.adoptedStyleSheets.filter(s => s !== css); };
		stand.hidden = true;
		return stand;
	};
	document.createElement = (name, ...more) => name === "style" ? sheet() : create(name, ...more);
	Element.prototype.setAttribute = function (name, value) {
		if (name === "style") this.style.cssText = value;
		else set.call(this, name, value);
	};

	const terminal = new Terminal({
		cols: 80, rows: 24, scrollback: 5000, cursorBlink: false, screenReaderMode: true,
		fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"), fontSize: 14,
		theme: { background: "#12150f", foreground: "#e8ebe3", cursor: "#86cb9d", selectionBackground: "#4a5344" },
		linkHandler: { activate: () => {} }, // what a guest writes leads nowhere
	});

	let socket;
	const say = (text, ended) => { link.textContent = text; again.hidden = !ended; };
	const connect = () => {
		const url = new URL(box.dataset.stream, location.href);
		url.protocol = url.protocol.replace("http", "ws");
		const mine = socket = new WebSocket(url);
		let open = false;
		mine.binaryType = "arraybuffer";
		say("Connecting …", false);
		mine.onopen = () => { open = true; terminal.reset(); say("Connected", false); terminal.focus(); };
		mine.onmessage = e => terminal.write(new Uint8Array(e.data));
		mine.onclose = async () => {
			say(open ? "The connection has ended." : await refusal(), true);
		};
	};
	// A WebSocket does not tell why it was refused: the same path without an upgrade does.
	const refusal = async () => {
		try {
			const vm = await fetch(box.dataset.stream.replace(/\/stream.*/, ""), { headers: { Accept: "application/json" } });
			const told = await vm.json();
			if (!vm.ok) return told.detail || told.title;
			return told.state === "running" ? "The console does not answer." : "The VM is " + told.state + ": it has no console.";
		} catch {
			return "The server does not answer.";
		}
	};
	const bytes = new TextEncoder();
	terminal.onData(text => { if (socket.readyState === WebSocket.OPEN) socket.send(bytes.encode(text)); });
	terminal.onBinary(text => {
		if (socket.readyState === WebSocket.OPEN) socket.send(Uint8Array.from(text, c => c.charCodeAt(0)));
	});
	terminal.attachCustomKeyEventHandler(e => {
		if (!e.ctrlKey || e.key !== "]") return true;
		if (e.type === "keydown") leave.focus();
		return false;
	});
	again.addEventListener("click", connect);
	document.fonts.load('14px "Plex Mono"').finally(() => { terminal.open(box); connect(); });
})();
