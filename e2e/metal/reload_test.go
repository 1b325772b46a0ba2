package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/metal/metallab"
)

// TestReload loads KVM with other parameters while jobs come and go, is killed while the module is out, and does it
// again.
func TestReload(t *testing.T) {
	long(t)
	t.Parallel()
	h := start(t, metallab.Options{Name: "reload"})
	run(t, h, `cat >/root/jobs <<'END'
#!/bin/sh
# jobs that come and go until there is a file; each has to end well
while ! test -e /root/enough; do
	grange exec -- sh -c 'sleep 3; echo over' >>/root/over 2>>/root/complaints || echo "status $?" >>/root/failed
done
END
chmod +x /root/jobs
for n in 1 2; do setsid /root/jobs >/dev/null 2>&1 </dev/null & done
until test -s /root/over -o -e /root/failed; do sleep 1; done`)
	const apply = "grange tune apply --drain --yes --rule nested-on"
	run(t, h, apply+` >/root/first 2>&1 & pid=$!
while test -e /sys/module/kvm_amd && kill -0 $pid 2>/dev/null; do :; done
kill -9 $pid
wait $pid || true
test -e /var/lib/grange/drain.json || { cat /root/first; exit 1; } >&2`)
	if out, err := h.Run(t.Context(), "grange exec --no-wait -- true 2>&1"); err == nil ||
		!strings.Contains(out, "host-drained") {
		t.Errorf("a job that does not wait, on a drained host: %v, %s", err, out)
	}
	if got := run(t, h, "grange host show"); !strings.Contains(got, "it is drained") {
		t.Errorf("the host does not say that it is drained:\n%s", got)
	}
	t.Log(run(t, h, apply+" 2>&1"))
	over := run(t, h, `cat /sys/module/kvm_amd/parameters/nested
test ! -e /var/lib/grange/drain.json || exit 1
n=$(wc -l </root/over); until test $(wc -l </root/over) -gt $((n+2)) -o -e /root/failed; do sleep 1; done; touch /root/enough
grange host show --json | grep -o '"accelerator": "[^"]*"'`)
	if !strings.HasPrefix(over, "0\n") && !strings.HasPrefix(over, "N\n") || !strings.Contains(over, `"kvm"`) {
		t.Errorf("after the second time: %s", over)
	}
	if failed := run(t, h, "cat /root/failed 2>/dev/null || true"); failed != "" {
		t.Errorf("jobs failed meanwhile: %s: %s", failed, run(t, h, "tail -5 /root/complaints"))
	}
	var history []struct{ ID, Phase string }
	if err := json.Unmarshal([]byte(run(t, h, "grange tune history --json")), &history); err != nil {
		t.Fatal(err)
	}
	if len(history) != 2 || history[0].Phase != "undone" || history[1].Phase != "applied" {
		t.Fatalf("history: %+v", history)
	}
	run(t, h, "grange tune undo "+history[1].ID+" --drain && test $(cat /sys/module/kvm_amd/parameters/nested) != 0")
}
