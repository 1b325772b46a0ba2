package apply

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/tuning"
)

func TestCopyTakesWhatAPlanNeeds(t *testing.T) {
	from := extract(t, map[string]string{"etc/default/grub": "x\n", "etc/long": strings.Repeat("x", 2*maxFile),
		"home/big": "x", "proc/7/comm": "kvm\n", "proc/7/environ": "secret",
		"sys/block/sda/queue/scheduler": "[none]\n", "sys/block/sdb/queue/scheduler": "[none]\n"})
	if err := syscall.Mkfifo(filepath.Join(from.Name(), "etc/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := from.Symlink("default/grub", "etc/grub"); err != nil {
		t.Fatal(err)
	}
	findings := []tuning.Finding{{Changes: []tuning.Change{{Kind: tuning.SetValue,
		Path: "sys/block/sda/queue/scheduler", Value: "none"}}}}
	to, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := Copy(t.Context(), to, from.FS(), findings); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"etc/default/grub": true, "etc/grub": true, "etc/pipe": false,
		"home": false, "proc/7/comm": true, "proc/7/environ": false, "sys/block/sda/queue/scheduler": true,
		"sys/block/sdb": false} {
		if _, err := to.Lstat(name); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
	if info, err := to.Stat("etc/long"); err != nil || info.Size() != maxFile+1 {
		t.Errorf("a file too long for a plan: %v %v", info, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	again, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := Copy(ended, again, from.FS(), findings); !errors.Is(err, context.Canceled) {
		t.Errorf("after ctrl-C: %v", err)
	}
}
