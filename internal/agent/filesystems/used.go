package filesystems

import (
	"fmt"
	"os"
	"slices"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/mounts"
)

// Used is what network file systems the directories of a job are of, the job's own and those mounted below them, when
// it was asked for.
type Used struct {
	Mounts []mounts.Mount `json:",omitempty"` // with those of autofs, which may make more
	More   bool           `json:",omitempty"` // than are kept
}

// mostMounts bounds what is kept of a job: where every home is a mount, that of /home has thousands.
const mostMounts = 256

// Of reads what the kernel says of a caller's open directories. No file system is asked, for its server may not answer.
// A directory that cannot be read does not count as used. Users who hide one gain only that their VM is ended with its
// server.
func Of(binds []api.Bind, pid int, oneFS bool) (u Used) {
	if len(binds) == 0 {
		return u
	}
	table, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return u
	}
	defer table.Close()
	byID, err := mounts.ByID(table)
	if err != nil {
		return u
	}
	for _, b := range binds {
		if b.FD == 0 {
			continue // a caller of an earlier release
		}
		info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, b.FD))
		if err != nil {
			continue
		}
		id, ok := mounts.ID(string(info))
		if !ok {
			continue
		}
		u.add(byID[id])
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, b.FD))
		if err != nil || oneFS {
			continue
		}
		for _, m := range byID {
			if mounts.Below(m.Point, path) {
				u.add(m)
			}
		}
	}
	slices.SortFunc(u.Mounts, mounts.Mount.Compare) // maps have no order
	return u
}

func (u *Used) add(m mounts.Mount) {
	switch {
	case !m.Network() && m.Type != "autofs" || slices.Contains(u.Mounts, m):
	case len(u.Mounts) == mostMounts:
		u.More = true
	default:
		u.Mounts = append(u.Mounts, m)
	}
}

// has reports whether a file system may be among them.
func (u Used) has(m mounts.Match) bool { return u.More || slices.ContainsFunc(u.Mounts, m.Has) }
