package binds

import (
	"fmt"
	"os"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts"
)

// fileSystem returns where a directory that the caller has open is from; nil where that is not known. It reads what the
// kernel says of the open file, and never asks the file system, whose server may not answer. Users can mount by FUSE
// under any name: it is for people to read, and grants nothing.
func fileSystem(c Caller, fd int) *mounts.Mount {
	if fd == 0 {
		return nil // a caller of an earlier release
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.PID, fd))
	if err != nil {
		return nil
	}
	id, ok := mounts.ID(string(info))
	if !ok {
		return nil
	}
	table, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", c.PID))
	if err != nil {
		return nil
	}
	defer table.Close()
	m, found, err := mounts.Find(table, id)
	if err != nil || !found || !c.Alive() {
		return nil
	}
	return &m
}

func viewFileSystem(m *mounts.Mount) *api.FileSystem {
	if m == nil {
		return nil
	}
	clean := func(s string) string { return farm.Clean(s, machine.MaxReason) }
	return &api.FileSystem{Type: clean(m.Type), Source: clean(m.Source), MountPoint: clean(m.Point),
		Device: clean(m.Device), Network: m.Network()}
}
