package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// smallDir puts a directory of the agent on a small file system. fill leaves nothing of it, and returns how to undo
// that.
func (f *farmhouse) smallDir(name, options string) (fill func() (free func())) {
	f.Helper()
	dir := filepath.Join(f.dir, name)
	f.close()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		f.Fatal(err)
	}
	f.T.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	f.open()
	return func() func() {
		f.Helper()
		var made []string
		block := make([]byte, 4096)
		for {
			path := filepath.Join(dir, "other-"+api.NewID())
			err := os.WriteFile(path, block, 0o600)
			if _, there := os.Lstat(path); there == nil {
				made = append(made, path)
			}
			if err != nil {
				break
			}
		}
		return func() {
			for _, path := range made {
				os.Remove(path)
			}
		}
	}
}

// TestFullRunDir: VMs that find no space for their sockets and records say where, the host backs off, and goes on when
// there is space.
func TestFullRunDir(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	for name, options := range map[string]string{"no bytes": "size=128k", "no files": "nr_inodes=32"} {
		t.Run(name, func(t *testing.T) {
			f := newFarmhouse(t)
			fill := f.smallDir("r", options)
			free := fill()
			w := f.cloud()
			f.want(w)
			says := "the file system of " + filepath.Join(f.dir, "r")
			f.sees("that there is no space", w, func(o fleet.Observed) bool {
				code, reason, _ := strings.Cut(o.Reason, ": ")
				// no-room: the server may place it elsewhere
				known := code == string(farm.CodeDiskFull) || code == string(farm.CodeNoRoom)
				return known && strings.HasPrefix(reason, says)
			})
			f.want()
			p := f.mustAsk(f.as(61001), api.JobRequest{}).problem()
			if p.Type != "grange:"+string(farm.CodeDiskFull) || !strings.HasPrefix(p.Detail, says) || p.Hint == "" {
				t.Errorf("%+v", p)
			}
			f.mustAsk(f.as(61002), api.JobRequest{}).problem()
			f.mustAsk(f.as(61003), api.JobRequest{}).problem()
			if off := f.agent.healing.backOffs(); len(off) == 0 || off[0].Kind != "host" {
				t.Errorf("the host does not back off: %+v", off)
			}
			free()
			f.close()
			f.open() // which forgets
			f.mustAsk(f.as(61002), api.JobRequest{}).until(api.EventRunning)
		})
	}
}

// TestFullStateDir: the same where records of cloud VMs lie.
func TestFullStateDir(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	f := newFarmhouse(t)
	free := f.smallDir("s/vm", "nr_inodes=32")()
	w := f.cloud()
	w.Shape.Scratch = 0
	f.want(w)
	f.sees("that there is no space", w, func(o fleet.Observed) bool {
		return strings.HasPrefix(o.Reason, "disk-full: the file system of "+filepath.Join(f.dir, "s/vm"))
	})
	free()
	f.seesState(w, farm.VMRunning)
}
