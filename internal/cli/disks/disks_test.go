package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/diskbench"
)

// TestDirectories: what no VM has is found; what one has, may be started again, or is being made, is not.
func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"grange-lives", "grange-left", "grange-kept", "grange-new", "other", ".bench-1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		disk := filepath.Join(dir, name, "scratch.raw")
		if name == "grange-kept" {
			disk = filepath.Join(dir, name, "wanted.json")
		}
		if err := os.WriteFile(disk, make([]byte, 8192), 0o600); err != nil {
			t.Fatal(err)
		}
		if old := time.Now().Add(-time.Hour); name != "grange-new" {
			if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	found, err := directories(dir, map[string]bool{"grange-lives": true})
	if err != nil || len(found) != 2 || found[0].Path != filepath.Join(dir, ".bench-1") ||
		found[1].Path != filepath.Join(dir, "grange-left") || found[1].Size != 8192 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, u := range found {
		if err := u.remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Error(left, err)
	}
	if none, err := directories(filepath.Join(dir, "none"), nil); err != nil || none != nil {
		t.Error(none, err)
	}
}

// TestProfiles: of libvirt's profiles only those of VMs of ours that have ended are found.
func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"libvirt-1.files": `"/var/lib/grange/vm/grange-1a/root.qcow2" rwk,`,
		"libvirt-1": "", "libvirt-2.files": `"/var/lib/grange/vm/grange-2b/root.qcow2" rwk,`, "libvirt-2": "",
		"libvirt-3.files": `"/var/lib/libvirt/images/web.qcow2" rwk,`, "libvirt-3": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := profiles(dir, map[string]bool{"2": true})
	if err != nil || len(found) != 1 || found[0].Path != filepath.Join(dir, "libvirt-1") {
		t.Fatalf("%+v, %v", found, err)
	}
	if err := found[0].remove(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Error(left, err)
	}
}

func TestTable(t *testing.T) {
	k := kept{Command: "grange disk bench", Choices: []diskbench.Choice{{Name: "file, writeback"}, {Name: "thin"}},
		Results: []diskbench.Median{
			{Result: diskbench.Result{Choice: "thin", Pattern: "random read", Block: 4096, Rate: 4.096e6, IOPS: 1000}},
			{Result: diskbench.Result{Choice: "thin", Pattern: "write", Block: 256 << 10, Rate: 2e8, IOPS: 763}}},
		Verdict: diskbench.Verdict{Choice: "thin"}}
	text := table(k)
	for _, want := range []string{"PATTERN", "FILE, WRITEBACK", "4.1 (1000 IOPS)", "200.0", "thin is the only choice"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if svg := picture(k); strings.Count(svg, "<rect") != 3 || !strings.Contains(svg, "random read 4K") {
		t.Error(svg)
	}
}
