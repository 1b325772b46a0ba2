// The display of a VM: its bytes come and go by a WebSocket, in the protocol of VNC, and noVNC draws them.
import RFB from "./novnc/core/rfb.js";

const box = document.getElementById("display"), cad = document.getElementById("cad"), { say, leave } = stream;
let display;
const connect = () => {
	let open = false;
	say("Connecting …", false);
	box.replaceChildren();
	const mine = display = new RFB(box, stream.url(box), { shared: true });
	mine.scaleViewport = true;
	mine.addEventListener("connect", () => {
		open = true;
		cad.disabled = false;
		say("Connected", false);
		mine.focus();
	});
	mine.addEventListener("disconnect", async () => {
		cad.disabled = true;
		say(open ? "The connection has ended." : await stream.refusal(box, "display"), true);
	});
};
// before noVNC has it, which keeps all keys
for (const type of ["keydown", "keyup"]) box.addEventListener(type, e => { if (leave(e)) e.stopPropagation(); }, true);
cad.addEventListener("click", () => { display.sendCtrlAltDel(); display.focus(); });
stream.again.addEventListener("click", connect);
connect();
