package inherited

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// TestLimits starts a process by a shell that lowers two limits: the soft one of open files is not the hard one.
func TestLimits(t *testing.T) {
	if os.Getenv("TEST_LIMITS") != "" {
		if err := json.NewEncoder(os.Stdout).Encode(Process().Limits); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf(
		"ulimit -Sn 100 && ulimit -Hn 200 && ulimit -St 3600 && ulimit -Ht 7200 && exec %s -test.run '^TestLimits$'",
		self))
	cmd.Env = append(os.Environ(), "TEST_LIMITS=1")
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []guest.Limit
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(got) != guest.Resources {
		t.Fatalf("%d limits: %s", len(got), text)
	}
	for _, want := range []guest.Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 100, Hard: 200},
		{Resource: unix.RLIMIT_CPU, Soft: 3600, Hard: 7200}} {
		if got[want.Resource] != want {
			t.Errorf("%+v, want %+v", got[want.Resource], want)
		}
	}
}

func TestUmask(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	if got := Process().Umask; got == nil || *got != 0o027 {
		t.Errorf("umask is %v", got)
	}
	if got := umask("Name:\tx\n"); got != nil { // Linux before 4.7
		t.Errorf("umask is %o", *got)
	}
}
