package filesystems

import (
	"fmt"
	"slices"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/mounts"
	"github.com/grange-project/grange/internal/mounts/mountstest"
)

// TestOf has directories of file systems whose servers never answer: one that is bound, one below another that is.
func TestOf(t *testing.T) {
	h := mountstest.Mount(t)
	hung := func(m mounts.Mount) bool {
		return m.Type == mountstest.Type && m.Source == mountstest.Source && m.Point == h.Dir
	}
	for name, u := range map[string]Used{
		"bound": Of([]api.Bind{{FD: h.FD}, {FD: 0}, {FD: 1 << 20}}, h.Thread, false),
		"below": Of([]api.Bind{{FD: h.Parent}}, h.Thread, false),
	} {
		if len(u.Mounts) != 1 || !slices.ContainsFunc(u.Mounts, hung) || u.More {
			t.Errorf("%s: %+v", name, u)
		}
	}
	if u := Of([]api.Bind{{FD: h.Parent}}, h.Thread, true); len(u.Mounts) != 0 {
		t.Errorf("below one that shows nothing of it: %+v", u)
	}
	if u := Of([]api.Bind{{FD: 3}}, 1<<30, false); len(u.Mounts) != 0 {
		t.Errorf("of no process: %+v", u)
	}
}

// TestMany: what is more than is kept counts as of every file system.
func TestMany(t *testing.T) {
	var u Used
	for i := range mostMounts + 1 {
		u.add(mounts.Mount{Type: "nfs", Source: fmt.Sprintf("server:/home/%d", i)})
		u.add(mounts.Mount{Type: "ext4", Source: "/dev/vda1"})
	}
	if len(u.Mounts) != mostMounts || !u.More || !u.has(mounts.Match{Source: "other:/"}) {
		t.Error(len(u.Mounts), u.More)
	}
}
