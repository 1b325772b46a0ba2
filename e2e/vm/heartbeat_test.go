package vm

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

// heartbeat is what is done about a guest that has not answered for a few seconds: less than a site would want, for
// tests.
const heartbeat = testConfig + "[heartbeat]\ntimeout = \"8s\"\naction = \"end\"\n"

func hasAnswered(vms []api.VM) bool { return len(vms) == 1 && vms[0].Heard != nil }

// TestGuestHangs freezes grange-guest in its VM: the job ends, with a status that says that it may have run.
func TestGuestHangs(t *testing.T) {
	reload(t, heartbeat, "configuration reloaded")
	defer reload(t, testConfig, "configuration reloaded")
	const freeze = "mkdir /sys/fs/cgroup/hung && echo 1 >/sys/fs/cgroup/hung/cgroup.procs && echo 1 " +
		">/sys/fs/cgroup/hung/cgroup.freeze"
	j, input := startWithInput(t, "--", "sh", "-c", "echo up; read go; "+freeze+"; sleep 600")
	await(t, host, "an answer of the guest", hasAnswered)
	input.Write([]byte("go\n"))
	if r := j.finish(t); r.code != 198 || !strings.Contains(r.errors, "guest-unresponsive") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	await(t, host, "the end of the VM", noVMs)
}

// TestGuestIsStopped stops a VM in ways in which its guest cannot answer: none of them ends it.
func TestGuestIsStopped(t *testing.T) {
	reload(t, heartbeat, "configuration reloaded")
	defer reload(t, testConfig, "configuration reloaded")
	j, input := startWithInput(t, "--", "sh", "-c", "echo up; read go; exit 5")
	await(t, host, "an answer of the guest", hasAnswered)
	const long = 20 * time.Second // more than twice the time that the guest has
	qemu := host.QEMUs()
	if len(qemu) != 1 {
		t.Fatalf("%d QEMUs run", len(qemu))
	}
	syscall.Kill(qemu[0], syscall.SIGSTOP)
	time.Sleep(long)
	syscall.Kill(qemu[0], syscall.SIGCONT)
	name := host.Machines()[0].Name
	if _, err := host.Virsh(ctx(t), "suspend", name); err != nil {
		t.Fatal(err)
	}
	time.Sleep(long)
	if _, err := host.Virsh(ctx(t), "resume", name); err != nil {
		t.Fatal(err)
	}
	host.SignalAgent(syscall.SIGSTOP)
	time.Sleep(long)
	host.SignalAgent(syscall.SIGCONT)
	time.Sleep(long / 2)
	await(t, host, "the VM running", hasState("running"))
	input.Write([]byte("go\n"))
	if r := j.finish(t); r.code != 5 || strings.Contains(r.errors, "unresponsive") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
}
