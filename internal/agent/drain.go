package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
)

// A drain keeps new VMs off this host, for a change that no VM may run under: jobs wait for its end, cloud VMs
// go elsewhere. It is on disk before it holds and until it is ended, across restarts and reboots: whoever drained the
// host may have been killed between two steps of the change, and does it again.

// drainFile keeps a drain.
const drainFile = "drain.json"

const mostDrainReason = 200

func (a recovery) drainPath() string { return filepath.Join(a.config().StateDir, drainFile) }

// Drained reports whether a host is drained. Nothing boots a guest on it then, not even to see whether KVM works: a
// change that waits for the last VM finds that guest running.
func Drained(stateDir string) bool {
	_, err := os.Stat(filepath.Join(stateDir, drainFile))
	return err == nil
}

// loadDrain goes on with the drain of an earlier agent. One that cannot be read is one: it is not known what the host
// is in.
func (a recovery) loadDrain() {
	text, err := os.ReadFile(a.drainPath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var d api.Drain
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		a.log.Error("the drain of this host cannot be read", "file", a.drainPath(), "error", err)
		d = api.Drain{Reason: a.drainPath() + " cannot be read"}
	}
	a.ledger.Drain(ledger.Drain{Reason: d.Reason, Since: d.Since})
	a.log.Warn("host drained: no VM starts", "reason", d.Reason)
}

// postDrain begins a drain, or gives the one that there is another reason, and returns what still runs or starts.
// Asking again is how one waits for the rest, and for an agent that does not know yet what runs: the drain holds from
// now on either way.
func (a routes) postDrain(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return drainDenied()
	}
	var d api.Drain
	if err := a.decode(w, r, c, &d); err != nil {
		return err
	}
	if d.Reason == "" || len(d.Reason) > mostDrainReason || farm.Printable(d.Reason) != d.Reason {
		return badRequest("a drain needs a reason of one line, at most %d bytes", mostDrainReason)
	}
	d.Since, d.Holders = time.Now(), nil
	old, drained := a.ledger.Drained()
	if drained {
		d.Since = old.Since
	}
	text, err := json.Marshal(d)
	if err == nil {
		err = atomicfile.Write(a.recovery.drainPath(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the drain: %w", err)
	}
	if !drained || old.Reason != d.Reason {
		a.log.Info("host drained: no VM starts", "reason", d.Reason)
	}
	a.ledger.Drain(ledger.Drain{Reason: d.Reason, Since: d.Since})
	d.Holders = a.ledger.JobHolders()
	if starting := a.Cloud.Starting(); starting > 0 {
		d.Holders = append(d.Holders, farm.Count(starting, "cloud VM")+" being started")
	}
	if !a.isKnown() {
		d.Holders = append(d.Holders, "all others: "+a.unknown())
	}
	return answer(w, d)
}

// deleteDrain ends a drain. Whether KVM works is found out anew first: the change may have been about that, and the VMs
// that waited wait for the answer. Ending what is not is no error.
func (a routes) deleteDrain(w http.ResponseWriter, _ *http.Request, c Caller) error {
	if !c.admin() {
		return drainDenied()
	}
	if _, drained := a.ledger.Drained(); !drained {
		return answer(w, api.Drain{})
	}
	if a.probeAgain != nil {
		a.probeAgain() // its guest waits for the file's end
	}
	if err := os.Remove(a.recovery.drainPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end the drain: %w", err)
	}
	a.log.Info("drain of the host ended")
	a.ledger.Resume()
	return answer(w, api.Drain{})
}

func drainDenied() error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours, Message: "only root may drain this host",
		Hint: "use sudo"}
}
