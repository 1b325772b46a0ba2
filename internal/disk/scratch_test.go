package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestScratchIsPinned holds the file system of scratch disks to what it was when it was chosen, whatever the release of
// mke2fs, and its configuration, would have.
func TestScratchIsPinned(t *testing.T) {
	config := filepath.Join(t.TempDir(), "mke2fs.conf")
	if err := os.WriteFile(config, []byte("[defaults]\nblocksize = 1024\ninode_size = 128\ndefault_mntopts = debug\n"+
		"[fs_types]\next4 = {\nfeatures = has_journal,metadata_csum,orphan_file\ninode_ratio = 4096\n"+
		"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MKE2FS_CONFIG", config)
	p := testPool(t)
	file, err := p.ScratchDisk(t.Context(), "vm", farm.ScratchDisk{Name: "scratch-2", Path: "/data", Size: farm.GiB})
	if err != nil {
		t.Fatal(err)
	}
	head := map[string]string{}
	for line := range strings.Lines(tool(t, "/usr/sbin/dumpe2fs", "-h", file)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		head[key] = strings.TrimSpace(value)
	}
	features := strings.Fields(head["Filesystem features"])
	slices.Sort(features)
	for key, want := range map[string]string{
		"Filesystem volume name": "scratch-2", "Block size": "4096", "Inode size": "256", "Inode count": "65536",
		"Reserved block count": "0", "Flex block group size": "16", "Errors behavior": "Continue",
		"Default mount options": "user_xattr acl", "Maximum mount count": "-1",
	} {
		if head[key] != want {
			t.Errorf("%s is %q; want %q", key, head[key], want)
		}
	}
	const want = "64bit dir_index dir_nlink ext_attr extent extra_isize filetype flex_bg huge_file large_file " +
		"sparse_super uninit_bg"
	if got := strings.Join(features, " "); got != want {
		t.Errorf("features are\n%s; want\n%s", got, want)
	}
}

// TestSwap: blkid of util-linux takes what we write for what mkswap makes.
func TestSwap(t *testing.T) {
	p := testPool(t)
	file, err := p.ScratchDisk(t.Context(), "vm", farm.ScratchDisk{Name: farm.SwapName, Size: 64 * farm.MiB})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/sbin/blkid", "-p", "-o", "export", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "TYPE=swap") || !strings.Contains(string(out), "VERSION=1") {
		t.Errorf("blkid: %v\n%s", err, out)
	}
	if used, size := p.usage("vm", "swap.raw"); used > 64*farm.KiB || size != 64*farm.MiB {
		t.Errorf("%v used of %v", used, size)
	}
	if _, err := p.ScratchDisk(t.Context(), "small", farm.ScratchDisk{Name: farm.SwapName, Size: 4096}); err == nil {
		t.Error("a swap area of a page is made")
	}
}
