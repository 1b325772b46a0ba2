// What pages do beyond links and forms: they say when they are not live any more, keep quiet while nobody looks, and
// have a few keys. Every page works without it.
"use strict";
(() => {
	const stale = document.getElementById("stale");
	const say = text => { stale.textContent = text; stale.hidden = text === ""; };

	// a hidden page asks for nothing, nor does one whose session has ended
	let signedOut = false;
	document.addEventListener("htmx:confirm", e => {
		if ((document.hidden || signedOut) && e.detail.triggeringEvent === undefined) e.preventDefault();
	});
	document.addEventListener("htmx:afterRequest", e => { if (e.detail.successful) say(""); });
	document.addEventListener("htmx:sendError", () => say("The server does not answer: what is shown may be old. Trying again."));
	document.addEventListener("htmx:responseError", e => {
		const status = e.detail.xhr.status;
		signedOut = status === 401;
		say(status === 401 ? "You are signed out: load the page again to sign in."
			: "The server could not answer (" + status + "): what is shown may be old. Trying again.");
	});

	// "/" goes to the filter, "n" to a new VM, "g" and a letter to a page
	let went = 0;
	document.addEventListener("keydown", e => {
		if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input,textarea,select,[contenteditable],[data-keys]")) return;
		if (e.key === "/") {
			const filter = document.querySelector("[data-filter]");
			if (filter) { e.preventDefault(); filter.focus(); filter.select(); }
		} else if (e.key === "g") {
			went = e.timeStamp;
			return;
		} else if (went && e.timeStamp - went < 1500) {
			const to = document.querySelector('nav [data-key="' + CSS.escape(e.key) + '"]');
			if (to) to.click();
		} else if (e.key === "n") {
			const make = document.querySelector("[data-new]");
			if (make) make.click();
		}
		went = 0;
	});

	// a choice in a filter needs no button
	document.addEventListener("change", e => {
		const form = e.target.closest("form[data-auto]");
		if (form) form.requestSubmit();
	});
	document.addEventListener("click", async e => {
		const copy = e.target.closest("[data-copy]");
		if (!copy) return;
		await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent);
		copy.textContent = "Copied";
	});
	for (const only of document.querySelectorAll("[data-script]")) only.hidden = false;
})();
