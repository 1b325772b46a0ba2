// Package tune changes this machine's own settings and takes them back: huge pages, KSM and transparent huge pages,
// also when the program is killed in between. It needs root, and takes eight megabytes of memory for a moment.
package tune

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

// workerEnv makes this test program a worker that applies or undoes, and can be killed.
const workerEnv = "GRANGE_TEST_TUNE"

// program is the built grange.
var program string

func TestMain(m *testing.M) {
	if task := os.Getenv(workerEnv); task != "" {
		if err := work(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(withMachine(m))
}

// withMachine has the machine's memory settings to itself.
func withMachine(m *testing.M) int {
	release, err := lab.HoldMemory()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer release()
	dir, err := os.MkdirTemp("", "grange-tune-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "grange")
	_, source, _, _ := runtime.Caller(0)
	build := exec.Command("go", "build", "-o", program, "./cmd/grange")
	build.Dir = filepath.Dir(filepath.Dir(filepath.Dir(source)))
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// work is what a worker does: "undo", or to apply findings in JSON.
func work(task string) error {
	ctx := context.Background()
	system, err := apply.Live()
	if err != nil {
		return err
	}
	if task == "undo" {
		_, err := apply.Undo(ctx, system, "", false, apply.Options{})
		return err
	}
	var findings []tuning.Finding
	if err := json.Unmarshal([]byte(task), &findings); err != nil {
		return err
	}
	plan, err := apply.NewPlan(ctx, system, findings)
	if err != nil {
		return err
	}
	_, err = apply.Do(ctx, system, plan, apply.Options{Who: apply.Me()})
	return err
}

// worker is this program at such a task.
func worker(t *testing.T, task string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), workerEnv+"="+task)
	return cmd
}

// settings are all files of these directories that can be written and read: what a change could leave behind.
func settings(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{"/sys/kernel/mm", "/sys/devices/system/node", "/etc/tmpfiles.d", "/etc/sysctl.d",
		"/etc/modprobe.d", "/etc/sysctl.conf"} {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "memory_tiering" {
				return nil // it ended while we looked, or is not there
			}
			info, err := d.Info()
			if err != nil || !info.Mode().IsRegular() || info.Mode()&0o600 != 0o600 {
				return nil
			}
			if text, err := os.ReadFile(name); err == nil {
				out[name] = info.Mode().String() + "\n" + string(text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/sys/kernel/mm/ksm/run", thp, pages} {
		if out[name] == "" {
			t.Fatalf("this machine has no %s", name)
		}
	}
	return out
}

// same fails when a setting is not what it was.
func same(t *testing.T, before map[string]string, what string) {
	t.Helper()
	if d := cmp.Diff(before, settings(t)); d != "" {
		t.Fatalf("%s (-before +after):\n%s", what, d)
	}
}

// forget removes the records of applies that a test made, and the directories when there were none before.
func forget(t *testing.T) {
	t.Helper()
	const dir = "/var/lib/grange/tuning"
	known, _ := filepath.Glob(dir + "/*")
	t.Cleanup(func() {
		now, _ := filepath.Glob(dir + "/*")
		for _, name := range now {
			if !slices.Contains(known, name) && !strings.HasSuffix(name, "/lock") {
				os.RemoveAll(name)
			}
		}
		if len(known) == 0 {
			os.RemoveAll(dir)
			os.Remove(filepath.Dir(dir)) // not when something else is in it
		}
	})
}
