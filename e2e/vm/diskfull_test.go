package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/e2e/lab"
)

// TestDiskFull fills the file system of state_dir under a VM that writes to its scratch disk: its job ends with the
// reason, a VM beside it goes on, the host takes no further job, and when there is space again all is as before.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	l := otherHost(t, lab.Options{StateSize: "768M", Config: "[minimum]\ndisk = \"32M\"\n"})
	small := filepath.Join(l.Dir, "state")
	idle, sayIdle := talk(t, l, "--", "sh", "-c", "echo up; read line; echo $line")
	writer, sayWriter := talk(t, l, "--scratch", "64M", "--", "sh", "-c",
		"echo up; read line; dd if=/dev/zero of=/tmp/file bs=1M count=48 conv=fsync; echo done")
	fill := filepath.Join(small, "other")
	if err := fillUp(fill); err != nil {
		t.Fatal(err)
	}
	sayWriter("go")
	if r := writer.finish(t); r.code != 198 || !strings.Contains(r.errors, "[vm-disk-full]") ||
		!strings.Contains(r.errors, "try:") {
		t.Errorf("status %d, %q", r.code, r.errors)
	}
	if err := fillUp(fill + "2"); err != nil { // what the writer gave back
		t.Fatal(err)
	}
	if r := run(t, l.Exec(ctx(t), "--no-wait", "--", "true"), ""); r.code != 199 ||
		!strings.Contains(r.errors, "[below-minimum]") {
		t.Errorf("a full host takes a job: status %d, %q", r.code, r.errors)
	}
	if r := run(t, l.Grange(ctx(t), "host", "show"), ""); !strings.Contains(r.out, "no more VMs: disk space") {
		t.Errorf("host show does not say what is short:\n%s", r.out)
	}
	l.KillAgent()
	if err := l.StartAgent(ctx(t)); err != nil { // with not a byte free
		t.Fatal(err)
	}
	sayIdle("still here")
	if r := idle.finish(t); r.code != 0 || !strings.Contains(r.out, "still here") {
		t.Errorf("the VM beside it: status %d, %q, %q", r.code, r.out, r.errors)
	}
	for _, path := range []string{fill, fill + "2"} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	run(t, l.Exec(ctx(t), "--scratch", "64M", "--", "echo", "again"), "").want(t, 0, "again\n")
	if left := l.Leaks(ctx(t)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// talk starts a job that prints "up", and returns what says a line to it.
func talk(t *testing.T, l *lab.Lab, args ...string) (j *job, say func(line string)) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	cmd := l.Exec(ctx(t), args...)
	cmd.Stdin = r
	j = launch(t, cmd)
	j.expect(t, "up")
	return j, func(line string) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			t.Error(err)
		}
	}
}

// fillUp writes a file until its file system is full.
func fillUp(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); ; {
		switch _, err := f.Write(block); {
		case err == nil:
		case strings.Contains(err.Error(), syscall.ENOSPC.Error()):
			return nil
		default:
			return fmt.Errorf("fill the file system: %w", err)
		}
	}
}
