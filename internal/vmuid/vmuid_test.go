package vmuid

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// standard is the default range of an agent.
var standard = farm.UIDs{First: 2113929216, Last: 2113994751}

func host(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/self/uid_map": "         0          0 4294967295\n", "proc/self/gid_map": "0 0 4294967295\n",
		"etc/passwd":     "root:x:0:0:root:/root:/bin/bash\nlibvirt-qemu:x:64055:108::/:/bin/false\n",
		"etc/group":      "root:x:0:\nkvm:x:108:\n",
		"etc/subuid":     "ann:100000:65536\n",
		"etc/login.defs": "# UID_MAX 4000000000\nUID_MIN\t\t\t 1000\nSUB_UID_MAX 600100000\nENV_PATH /bin\n",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestCheck(t *testing.T) {
	for _, u := range []farm.UIDs{{}, standard, {First: 70000, Last: 80000}} {
		if err := Check(host(nil), u); err != nil {
			t.Errorf("%v: %v", u, err)
		}
	}
	for name, c := range map[string]struct {
		files map[string]string
		u     farm.UIDs
		want  string
	}{
		"an account": {map[string]string{"etc/passwd": "x:x:2113929999:1::/:/bin/sh\n"}, standard,
			"2113929999 is x in /etc/passwd"},
		"a group": {map[string]string{"etc/group": "g:x:2113994751:\n"}, standard,
			"2113994751 is g in /etc/group"},
		"subordinate IDs": {map[string]string{"etc/subuid": "bob:2113900000:65536\n"}, standard,
			"of user bob in /etc/subuid"},
		"subordinate groups": {map[string]string{"etc/subgid": "bob:2113994751:1\n"}, standard,
			"of user bob in /etc/subgid"},
		"new accounts":        {nil, farm.UIDs{First: 59999, Last: 60000}, "new accounts get 1000-60000"},
		"new subordinate IDs": {nil, farm.UIDs{First: 300000, Last: 300010}, "SUB_UID_MIN"},
		"a site's login.defs": {map[string]string{"etc/login.defs": "UID_MAX 4000000000\n"}, standard,
			"new accounts get 1000-4000000000"},
		"services of systemd": {nil, farm.UIDs{First: 62000, Last: 65000}, "systemd"},
		"containers":          {nil, farm.UIDs{First: 1879048191, Last: 1879048200}, "containers"},
		"the agent's tools":   {nil, farm.UIDs{First: 2130000000, Last: 2130706432}, "grange's own tools"},
		"a small namespace": {map[string]string{"proc/self/uid_map": "0 100000 65536\n"}, standard,
			"user namespace"},
		"no groups mapped":   {map[string]string{"proc/self/gid_map": "0 0 2113994751\n"}, standard, "gid_map"},
		"an unreadable map":  {map[string]string{"proc/self/uid_map": "what\n"}, standard, "cannot be checked"},
		"no user namespaces": {map[string]string{"proc/self/uid_map": ""}, standard, "user namespace"},
		"the first is another": {map[string]string{"etc/passwd": "x:x:70000:1::/:/bin/sh\n"},
			farm.UIDs{First: 70000, Last: 70010}, "70000 is x"},
	} {
		if err := Check(host(c.files), c.u); !farm.IsCode(err, farm.CodeUIDsTaken) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestAsk has accounts that only the name service knows, and one that is down.
func TestAsk(t *testing.T) {
	unknown := &program.Failed{Status: 2}
	u := farm.UIDs{First: 70000, Last: 70100}
	for name, c := range map[string]struct {
		out   string
		err   error
		taken bool
	}{
		"nobody's":           {"", unknown, false},
		"the last":           {"x:*:70100:1::/:/bin/sh\n", unknown, true}, // the others are nobody's
		"another is meant":   {"70000:*:500:1::/:/bin/sh\n", unknown, false},
		"it is down":         {"", errors.New("down"), false},
		"it answers rubbish": {"x:y\n", nil, false},
	} {
		service := names.New(func(_ context.Context, call program.Call) ([]byte, error) {
			if !slices.Contains(call.Args, "70000") || !slices.Contains(call.Args, "70100") {
				t.Errorf("it is asked for %v", call.Args)
			}
			return []byte(c.out), c.err
		})
		if err := Ask(t.Context(), service, u); farm.IsCode(err, farm.CodeUIDsTaken) != c.taken ||
			err != nil && !c.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRunning finds a process by what the kernel says of it, also one that nobody may look into.
func TestRunning(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it runs a process of another user")
	}
	u := farm.UIDs{First: 61200, Last: 61210}
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 61205, Gid: 61205}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	got, err := Running(os.DirFS("/proc"), u)
	if err != nil || len(got) != 1 || !got[61205] {
		t.Errorf("%v, %v", got, err)
	}
	got, err = Running(fstest.MapFS{"1/status": {Data: []byte("Name:\ta\nUid:\t0\t0\t61201\t0\nGid:\t0\n")},
		"self/status": {Data: []byte("\nUid:\t61202\n")}, "7": {}}, u)
	if err != nil || len(got) != 1 || !got[61201] {
		t.Errorf("%v, %v", got, err)
	}
}
