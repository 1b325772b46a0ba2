package setup

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	s := Setup{Grange: "/usr/bin/grange", Queues: []string{"vm"}, Dir: "/root/g", Requeues: 2}
	const want = `#!/bin/sh
# Puts grange's hook into this PBS server. Run it as root on the server's host.
set -e
qmgr -c 'create resource grange type=boolean,flag=h'
qmgr -c 'create resource grange_image type=string'
qmgr -c 'create hook grange'
qmgr -c 'set hook grange event = "execjob_begin,execjob_launch,execjob_epilogue,execjob_end,exechost_startup,exechost_periodic"'
qmgr -c 'set hook grange freq = 60'
qmgr -c 'set hook grange order = 110'
qmgr -c 'set hook grange alarm = 30'
qmgr -c 'set hook grange fail_action = offline_vnodes'
qmgr -c 'import hook grange application/x-python default /root/g/launch.py'
qmgr -c 'import hook grange application/x-config default /root/g/grange.json'
qmgr -c 'set hook grange enabled = true'
qmgr -c 'set queue vm default_chunk.grange = true'
`
	if got := s.Script(); !strings.HasPrefix(got, want) {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	text, err := s.Config()
	var c struct {
		Wrapper  []string
		Queues   []string
		Requeues int
	}
	if err := json.Unmarshal(text, &c); err != nil ||
		strings.Join(c.Wrapper, " ") != "/usr/bin/grange exec --batch pbs" || c.Requeues != 2 || len(c.Queues) != 1 {
		t.Errorf("%s, %v", text, err)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := (Setup{Grange: "grange"}).Config(); err == nil {
		t.Error("a wrapper without a path is taken: PBS has no PATH to find it by")
	}
}

// TestHookCompiles: a hook that Python cannot read would reject every job.
func TestHookCompiles(t *testing.T) {
	cmd := exec.Command("/usr/bin/python3", "-I", "-c", "import ast, sys; ast.parse(sys.stdin.read())")
	cmd.Stdin = strings.NewReader(string(Hook))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSizes runs the hook's own functions on what PBS prints.
func TestSizes(t *testing.T) {
	functions := string(Hook)
	functions = functions[strings.Index(functions, "def seconds"):strings.Index(functions, "def here")]
	cmd := exec.Command("/usr/bin/python3", "-I", "-c", functions+`
for given, want in (("400mb", 400 << 20), ("2gb", 2 << 30), ("512kb", 512 << 10), ("7", 7), ("7b", 7), ("10mw", 80 << 20), ("1tb", 1 << 40)):
    assert size(given) == want, (given, size(given))
for given, want in (("01:02:03", 3723), ("60", 60), ("00:10", 10), ("100:00:00", 360000)):
    assert seconds(given) == want, (given, seconds(given))
for bad in ("400xb", "mb", ""):
    try:
        size(bad)
    except (ValueError, KeyError):
        continue
    raise AssertionError(bad)
`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestImageOnTheHost runs the hook's own function on jobs of queues with and without VMs.
func TestImageOnTheHost(t *testing.T) {
	functions := string(Hook)
	functions = functions[strings.Index(functions, "def text"):strings.Index(functions, "def seconds")] +
		functions[strings.Index(functions, "def for_vm"):strings.Index(functions, "def begin")]
	cmd := exec.Command("/usr/bin/python3", "-I", "-c", functions+`
from types import SimpleNamespace as N
def event(queue, image=None):
    return N(job=N(queue=N(name=queue), Resource_List={"grange_image": image}))
assert for_vm(event("vm", "sl9"), {"queues": ["vm"]})
assert for_vm(event("any", "sl9"), {})
assert not for_vm(event("workq"), {"queues": ["vm"]})
try:
    for_vm(event("workq", "sl9"), {"queues": ["vm"]})
except ValueError as why:
    assert "queue workq run on the host" in str(why), why
else:
    raise AssertionError("the job runs on the host")
`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
