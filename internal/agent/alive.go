package agent

import (
	"net/http"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// CodeHung is of an agent that has to be started again.
const CodeHung farm.Code = "agent-hung"

// aliveWithin is how long a loop that turns each second may take before the agent counts as hung.
const aliveWithin = 30 * time.Second

// getAlive answers when that works which everything goes through: the socket, the locks of the agent's lists, and a
// loop that waits for nothing outside of the agent. Libvirt, a disk or a name service that hangs, and with it perhaps
// the ledger, does not make an agent dead: it answers who asks why, and another agent would hang as well.
func (a routes) getAlive(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	a.all()
	a.Cloud.All()
	if a.watch.watching.Hangs(time.Now(), aliveWithin) {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeHung, Message: "a loop of the agent stands still",
			Hint: "systemd starts it again; VMs go on"}
	}
	return answer(w, api.Alive{Version: a.version})
}
