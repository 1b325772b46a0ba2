package inside

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// partitions are those that sfdisk finds on a disk, and fails the test where it finds fault with the table.
func partitions(t *testing.T, disk string) (sizes []uint64) {
	t.Helper()
	out, err := exec.Command("/sbin/sfdisk", "--json", disk).Output()
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		PartitionTable struct {
			LastLBA    uint64 `json:"lastlba"`
			Partitions []struct{ Start, Size uint64 }
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/sbin/sfdisk", "--verify", disk).CombinedOutput(); err != nil ||
		bytes.Contains(out, []byte("corrupt")) || bytes.Contains(out, []byte("PMBR")) {
		t.Errorf("%s: %v\n%s", disk, err, out)
	}
	for _, p := range found.PartitionTable.Partitions {
		sizes = append(sizes, p.Size)
	}
	return sizes
}

// TestGrowPartition grows partitions that sfdisk has made, and has it judge what is there then.
func TestGrowPartition(t *testing.T) {
	if _, err := os.Stat("/sbin/sfdisk"); err != nil {
		t.Skip("sfdisk is not installed")
	}
	const (
		mib      = 1 << 20 / sector
		mbr      = "label: dos\nstart=2048,size=65536\nstart=67584,size=61440\n"
		logical  = "label: dos\nstart=2048,size=129024,type=5\nstart=4096,size=2048,type=83\n"
		unsorted = "label: gpt\nstart=34816,size=65536\nstart=2048,size=8192\n"
		gpt      = "label: gpt\nstart=2048,size=2048\nstart=4096,size=65536\n"
	)
	for name, c := range map[string]struct {
		script       string
		from, to     int64 // MiB of the disk
		start        uint64
		want         uint64 // sectors of the partition; 0: nothing changes
		partition, n int
	}{
		"mbr, last":       {mbr, 64, 128, 67584, 95 * mib, 1, 2},
		"mbr, first":      {mbr, 64, 128, 2048, 0, 0, 2},
		"mbr, whole":      {"label: dos\nstart=2048,size=129024\n", 64, 64, 2048, 0, 0, 1},
		"mbr, logical":    {logical, 64, 128, 4096, 0, 1, 2},
		"gpt, last":       {gpt, 64, 128, 4096, 125 * mib, 1, 2},
		"gpt, order":      {unsorted, 64, 128, 34816, 110 * mib, 0, 2},
		"gpt, first":      {gpt, 64, 128, 2048, 0, 0, 2},
		"gpt, not larger": {"label: gpt\nstart=2048,size=126976\n", 64, 64, 2048, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, c.from<<20); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/sbin/sfdisk", "--quiet", path)
			cmd.Stdin = bytes.NewBufferString(c.script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if err := os.Truncate(path, c.to<<20); err != nil {
				t.Fatal(err)
			}
			before := content(t, path)
			disk, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			sectors := uint64(c.to) * mib
			if got, err := growPartition(disk, sectors, c.start); err != nil || got != c.want {
				t.Fatalf("%d sectors, %v; want %d", got, err, c.want)
			}
			if c.want == 0 {
				if !bytes.Equal(before, content(t, path)) {
					t.Error("the disk was written to")
				}
				return
			}
			if sizes := partitions(t, path); len(sizes) != c.n || sizes[c.partition] != c.want {
				t.Errorf("sfdisk finds %d sectors", sizes)
			}
			if again, err := growPartition(disk, sectors, c.start); again != 0 || err != nil {
				t.Errorf("it grows again: %d, %v", again, err)
			}
		})
	}
}

// TestGrowDamaged: a table that is not whole is left as it is, with a reason.
func TestGrowDamaged(t *testing.T) {
	for name, damage := range map[string]func([]byte){
		"no table":     func(b []byte) { b[510] = 0 },
		"no header":    func(b []byte) { b[sector] = 'X' },
		"header's sum": func(b []byte) { b[sector+gptLast]++ },
		"entries' sum": func(b []byte) { b[2*sector+40]++ },
		"many entries": func(b []byte) { b[sector+gptCount+3] = 0x40 },
		"a long one":   func(b []byte) { b[sector+gptSize+1] = 0xff },
	} {
		path := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/sbin/sfdisk", "--quiet", path)
		cmd.Stdin = bytes.NewBufferString("label: gpt\nstart=2048,size=2048\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("sfdisk: %v\n%s", err, out)
		}
		text := content(t, path)
		damage(text)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		disk, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := growPartition(disk, 32<<20/sector, 2048); err == nil || got != 0 {
			t.Errorf("%s: grown to %d", name, got)
		}
		disk.Close()
		if !bytes.Equal(text, content(t, path)) {
			t.Errorf("%s: the disk was written to", name)
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
