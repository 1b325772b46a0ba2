package networks

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// program stands for this one in the VMs of the test: it answers, and then checks what it answered.
const fakeProgram = `#!/bin/sh
case "$2" in
answer) echo "answered $*" >>"$SEEN"; sleep 0.2; echo '{'; echo '"address": "10.0.0.20:4711", "key": "'$KEY'"}' ;;
check) echo "checked $*" >>"$SEEN"; echo "$RESULT"; exit 4 ;;
esac
`

const fakeKey = "0123456789abcdef0123456789abcdef"

// fleetOf is a remote whose VMs are shells of this machine.
func fleetOf(t *testing.T, vms map[string]any, result string) (r remote, seen string, tmp string) {
	tmp = t.TempDir()
	seen = t.TempDir() + "/seen"
	return remote{
		self: func() ([]byte, error) { return []byte(fakeProgram), nil },
		grange: func(ctx context.Context, input []byte, args ...string) ([]byte, error) {
			if slices.Equal(args[:2], []string{"vm", "show"}) {
				return json.Marshal(vms[args[2]])
			}
			if args[0] != "ssh" || args[2] != "--" || len(args) != 4 {
				t.Errorf("%q", args)
			}
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", args[3])
			cmd.Stdin = bytes.NewReader(input)
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "SEEN="+seen, "KEY="+fakeKey, "RESULT="+result)
			return cmd.Output()
		}}, seen, tmp
}

func TestBetween(t *testing.T) {
	vms := map[string]any{
		"web-1": fleet.VM{Name: "web-1", Project: "p", Address: "10.0.0.20/24", Network: "lan", Host: "h1"},
		"web-2": fleet.VM{Name: "web-2", Project: "p", Address: "10.0.0.21/24", Network: "lan", Host: "h2"},
		"job":   api.VM{Name: "job"}, "bare": fleet.VM{Name: "bare", Project: "p"}}
	const result = `[{"verdict": "good", "result": {"flood": {"sent": 100, "arrived": 93, "returned": 93}}}]`
	r, seen, tmp := fleetOf(t, vms, result)
	f := checkFlags{time: time.Second, packets: 100}
	a, err := r.find(t.Context(), "web-1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.find(t.Context(), "debian@web-2")
	if err != nil {
		t.Fatal(err)
	}
	one, err := r.between(t.Context(), f, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if one.Name != "lan" || one.Verdict != verdict.Bad || *one.Between != (pairOf{end{"web-2", "h2", "lan"},
		end{"web-1", "h1", "lan"}}) || one.Result.Flood.Arrived != 93 {
		t.Errorf("%+v, %+v", one, one.Between)
	}
	text, err := os.ReadFile(seen)
	const want = "answered network answer --json --time 2m 10.0.0.20:0\n" +
		"checked network check 10.0.0.20:4711 --key " + fakeKey + " --time 1s --packets 100 --json\n"
	if err != nil || string(text) != want {
		t.Errorf("%v, %s", err, text)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left in the VMs: %v", left)
	}
	for ref, why := range map[string]string{"job": "no cloud VM", "bare": "no leased address"} {
		if _, err := r.find(t.Context(), ref); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// TestBetweenHostile: what a VM says reaches no shell of the other one.
func TestBetweenHostile(t *testing.T) {
	vm := side{"a", fleet.VM{Name: "a", Address: "10.0.0.20/24"}}
	for _, said := range []string{`{"address": "10.0.0.20:1", "key": "$(reboot)aaaaaaaaaaaaaaaaaaaaaaaa"}`,
		`{"address": "10.0.0.20:1;reboot", "key": "` + fakeKey + `"}`, `{"address": "x:1", "key": "` + fakeKey + `"}`,
		`{}`, "nohup: cannot run", ""} {
		calls := 0
		r := remote{self: func() ([]byte, error) { return nil, nil },
			grange: func(context.Context, []byte, ...string) ([]byte, error) { calls++; return []byte(said), nil }}
		if _, err := r.between(t.Context(), checkFlags{}, vm, vm); err == nil || calls != 1 {
			t.Errorf("%s: %v, %d calls", said, err, calls)
		}
	}
	for _, text := range []string{"", "a", "a,", ",b", "a,a", "a,b,c", "-v,b", "a,b c"} {
		if _, _, err := pair(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
