package verify_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/tuning/verify"
)

var update = flag.Bool("update", false, "write what was found into the cases")

// lay puts the files of a txtar archive into a tree: each begins with a line "-- name --".
func lay(t *testing.T, tree fstest.MapFS, text string) {
	t.Helper()
	var file *fstest.MapFile
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			file = &fstest.MapFile{}
			tree[strings.TrimSuffix(name, " --\n")] = file
		} else if file != nil { // else the comment
			file.Data = append(file.Data, line...)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const wantLine = "-- want --\n"

// TestVerify reads each case of testdata as a host is read: testdata/host.txtar with the case's own files over it. The
// file "want" is the report.
func TestVerify(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(cases) < 2 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range cases {
		if filepath.Base(path) == "host.txtar" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			tree := fstest.MapFS{}
			lay(t, tree, read(t, "testdata/host.txtar"))
			files, want, _ := strings.Cut(read(t, path), wantLine)
			lay(t, tree, files)
			host, err := hostfacts.Read(tree)
			if err != nil {
				t.Fatal(err)
			}
			machines, err := hostfacts.ReadMachines(tree, host.Domains, false)
			if err != nil {
				t.Fatal(err)
			}
			if len(machines.Unread) > 0 || len(host.Unread) > 0 {
				t.Fatalf("not read: %v %v", machines.Unread, host.Unread)
			}
			got := describe(verify.Verify(host, slices.Concat(machines.Processes, machines.Unseen), machines.Plans))
			if *update {
				if err := os.WriteFile(path, []byte(files+wantLine+got), 0o644); err != nil {
					t.Fatal(err)
				}
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("report (-want +got; -update writes it):\n%s", diff)
			}
		})
	}
}

// describe is the report as text.
func describe(r verify.Report) string {
	var b strings.Builder
	for _, vm := range r.VMs {
		fmt.Fprintf(&b, "%s: %s\n", vm.Name, vm.Verdict)
		if own := vm.Memory.Own(); len(own) > 0 {
			fmt.Fprintf(&b, "  memory: guest %v, QEMU %v\n", vm.Memory.Guest(), own)
		}
		for _, l := range vm.Lines {
			fmt.Fprintf(&b, "  %s: planned %v, libvirt %v, kernel %v\n", l.Thread, none(l.Planned), none(l.Libvirt),
				none(l.Kernel))
		}
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%v %s: VM %s", p.Severity, p.Kind, p.VM)
		if len(p.Others) > 0 {
			fmt.Fprintf(&b, " and %s", strings.Join(p.Others, ", "))
		}
		fmt.Fprintf(&b, ", CPUs %v: %s\n", none(p.CPUs), p.Message)
	}
	return b.String()
}

func none(s farm.CPUSet) string {
	if s.Empty() {
		return "-"
	}
	return s.String()
}
