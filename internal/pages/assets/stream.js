// What consoles and displays have in common: where their bytes come from, what is said of the connection, and the key
// that gives the keyboard back to the page.
"use strict";
const stream = (() => {
	const link = document.getElementById("link"), again = document.getElementById("again");
	const url = box => {
		const at = new URL(box.dataset.stream, location.href);
		at.protocol = at.protocol.replace("http", "ws");
		return at.href;
	};
	const say = (text, ended) => { link.textContent = text; again.hidden = !ended; };
	// A WebSocket does not tell why it was refused: the VM does.
	const refusal = async (box, what) => {
		try {
			const vm = await fetch(box.dataset.stream.replace(/\/stream.*/, ""), { headers: { Accept: "application/json" } });
			const told = await vm.json();
			if (!vm.ok) return told.detail || told.title;
			return told.state === "running" ? `The ${what} does not answer.` : `The VM is ${told.state}: it has no ${what}.`;
		} catch {
			return "The server does not answer.";
		}
	};
	// leave reports whether a key is the one that leaves.
	const leave = e => {
		if (!e.ctrlKey || e.key !== "]") return false;
		if (e.type === "keydown") document.getElementById("leave").focus();
		return true;
	};
	return { again, url, say, refusal, leave };
})();
