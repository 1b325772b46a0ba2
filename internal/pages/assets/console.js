// The serial console of a VM, as a terminal: its bytes come and go by a WebSocket.
"use strict";
(() => {
	const box = document.getElementById("terminal"), { say, leave } = stream;

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
	const connect = () => {
		const mine = socket = new WebSocket(stream.url(box));
		let open = false;
		mine.binaryType = "arraybuffer";
		say("Connecting …", false);
		mine.onopen = () => { open = true; terminal.reset(); say("Connected", false); terminal.focus(); };
		mine.onmessage = e => terminal.write(new Uint8Array(e.data));
		mine.onclose = async () => {
			say(open ? "The connection has ended." : await stream.refusal(box, "console"), true);
		};
	};
	const bytes = new TextEncoder();
	terminal.onData(text => { if (socket.readyState === WebSocket.OPEN) socket.send(bytes.encode(text)); });
	terminal.onBinary(text => {
		if (socket.readyState === WebSocket.OPEN) socket.send(Uint8Array.from(text, c => c.charCodeAt(0)));
	});
	terminal.attachCustomKeyEventHandler(e => !leave(e));
	stream.again.addEventListener("click", connect);
	document.fonts.load('14px "Plex Mono"').finally(() => { terminal.open(box); connect(); });
})();
