package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/breaker"
	"github.com/grange-project/grange/internal/farm"
)

// boots has a worker's VM start: its guest is up, and nobody knows of its node yet. An image that backs off is refused.
func boots(t *testing.T, a *Agent, id string) (*vm, error) {
	t.Helper()
	b := &a.breakers
	v := &vm{agent: a, id: id, record: record{Worker: &workerRecord{Name: id, Image: "worker"}}}
	ticket, err := b.set.Admit(time.Now(), breaker.Start{Image: "worker"})
	if err == nil {
		b.pending[id] = ticket
	}
	return v, err
}

// TestWorkersBackOff: workers whose guests are up and whose nodes never come are failures of their image, which backs
// off; one whose node came ends that, whatever becomes of its VM later; one that is ended by order says nothing.
func TestWorkersBackOff(t *testing.T) {
	a := breakerAgent(t, nil, t.TempDir())
	end := map[string]func(v *vm){
		"late":    func(v *vm) { a.workerDesk.workerLate(v) },
		"died":    func(v *vm) { a.workerDesk.workerWent(v, true, "slurmd ended with status 1") },
		"ordered": func(v *vm) { a.workerDesk.workerWent(v, false, "") },
		"came":    func(v *vm) { a.workerDesk.workerCame(v); a.workerDesk.workerWent(v, true, "killed later") },
	}
	for _, c := range []struct {
		ends string
		off  bool
	}{
		{"late died ordered", false}, {"came", false}, {"late died came late died", false}, {"came", false},
		{"died late late", true},
	} {
		for i, how := range strings.Fields(c.ends) {
			v, err := boots(t, a, "vwn"+string(rune('1'+i)))
			if err != nil {
				t.Fatal(err)
			}
			if !a.workerDesk.unseen(v) {
				t.Error("its node is seen before anybody said so")
			}
			end[how](v)
			if a.workerDesk.unseen(v) || len(a.breakers.pending) > 0 {
				t.Errorf("after %q there is still something to learn", how)
			}
			end[how](v) // twice is once
		}
		if off := a.healing.backOffs(); len(off) > 0 != c.off {
			t.Errorf("%q: %+v", c.ends, off)
		}
	}
	_, err := boots(t, a, "vwn1")
	if !farm.IsCode(err, farm.CodeBackedOff) || !strings.Contains(err.Error(), "image worker backs off") {
		t.Errorf("%v", err)
	}
}

// TestWorkerLateWhileItBoots: the start hears of it, as it is what ends the VM.
func TestWorkerLateWhileItBoots(t *testing.T) {
	a := breakerAgent(t, nil, t.TempDir())
	v := &vm{agent: a, id: "1", record: record{Worker: &workerRecord{Name: "vwn1", Image: "worker"}}}
	a.breakers.starting["1"] = false
	a.workerDesk.workerLate(v)
	if !a.breakers.starting["1"] {
		t.Error("nobody told the start")
	}
	delete(a.breakers.starting, "1")
	a.workerDesk.workerLate(v) // of an agent that started anew: blames nobody, and keeps nothing
	if len(a.breakers.starting)+len(a.healing.backOffs()) > 0 {
		t.Errorf("%v %v", a.breakers.starting, a.healing.backOffs())
	}
}
