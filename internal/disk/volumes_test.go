package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lvm"
)

// TestVolumeSpace: what was promised is taken, whether its volume is there or not, and as much as is written counts
// once; volumes of others count with what they may grow to.
func TestVolumeSpace(t *testing.T) {
	thin, thick := lvm.Place{Group: "vg", Pool: "pool"}, lvm.Place{Group: "vg"}
	volume := func(at lvm.Place, owner, vm string, size, used farm.Bytes) lvm.Volume {
		return lvm.Volume{Group: at.Group, Pool: at.Pool, Owner: owner, VM: vm, Size: size * farm.GiB,
			Used: used * farm.GiB}
	}
	r := lvm.Report{Spaces: map[lvm.Place]lvm.Space{thin: {Size: 100 * farm.GiB, Free: 60 * farm.GiB},
		thick: {Size: 200 * farm.GiB, Free: 50 * farm.GiB}},
		Volumes: []lvm.Volume{volume(thin, "me", "vm-1", 30, 20), volume(thin, "me", "vm-2", 10, 5),
			volume(thin, "other", "vm-1", 25, 15), volume(thick, "me", "vm-1", 40, 40)}}
	for _, c := range []struct {
		at          lvm.Place
		promised    map[string]farm.Bytes
		free, short farm.Bytes // GiB
	}{
		{thin, nil, 35, 0}, // 10 + 5 + 10 to come
		{thin, map[string]farm.Bytes{"vm-1": 30 * farm.GiB, "vm-2": 10 * farm.GiB}, 35, 0},
		{thin, map[string]farm.Bytes{"vm-1": 60 * farm.GiB, "vm-2": 10 * farm.GiB}, 5, 0},
		{thin, map[string]farm.Bytes{"vm-1": 30 * farm.GiB, "vm-2": 10 * farm.GiB, "vm-3": 40 * farm.GiB}, 0, 5},
		{thick, map[string]farm.Bytes{"vm-1": 40 * farm.GiB}, 50, 0},
		{thick, map[string]farm.Bytes{"vm-1": 40 * farm.GiB, "vm-4": 51 * farm.GiB}, 0, 1},
	} {
		s, err := spaceOf(r, c.at, "me", c.promised)
		if err != nil || s.Free != c.free*farm.GiB || s.Short != c.short*farm.GiB {
			t.Errorf("%v, %v: %v free, %v short, %v; want %d and %d GiB", c.at, c.promised, s.Free, s.Short, err,
				c.free, c.short)
		}
	}
	if _, err := spaceOf(r, lvm.Place{Group: "gone"}, "me", nil); !farm.IsCode(err, lvm.CodeNoVolumes) {
		t.Error(err)
	}
}

// TestNoStorage: what a host has not is refused before anything is made.
func TestNoStorage(t *testing.T) {
	p := testPool(t)
	shape := func(on farm.Storage) farm.Shape {
		return farm.Shape{Memory: farm.GiB, Scratch: farm.GiB, Disks: farm.Disks{ScratchOn: on}}
	}
	for _, c := range []struct {
		has Volumes
		on  farm.Storage
		ok  bool
	}{
		{Volumes{}, farm.OnFile, true}, {Volumes{}, farm.InMemory, true}, {Volumes{}, farm.OnVolume, false},
		{Volumes{Group: "vg"}, farm.OnVolume, true}, {Volumes{Group: "vg"}, farm.OnThin, false},
		{Volumes{Group: "vg", ThinPool: "pool"}, farm.OnThin, true},
	} {
		if err := c.has.Check(shape(c.on)); c.ok != (err == nil) {
			t.Errorf("%+v has %v: %v", c.has, c.on, err)
		}
	}
	_, err := p.ScratchDisk(t.Context(), "vm", farm.ScratchDisk{Name: "scratch", Path: "/tmp", Size: farm.GiB,
		On: farm.OnThin})
	wantCode(t, err, lvm.CodeNoVolumes)
	wantEmpty(t, p)
}

// TestUnowned: a volume goes when its VM has no directory, and only if it is this pool's.
func TestUnowned(t *testing.T) {
	p := testPool(t)
	if err := os.Mkdir(filepath.Join(p.dir, "lives"), 0o700); err != nil {
		t.Fatal(err)
	}
	v := &volumes{owner: "me", report: lvm.Report{Volumes: []lvm.Volume{
		{Name: "a", Owner: "me", VM: "lives"}, {Name: "b", Owner: "me", VM: "ended"},
		{Name: "c", Owner: "it", VM: "ended"},
		{Name: "d", Owner: "", VM: "ended"}}}}
	if got := v.unowned(p); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("%+v", got)
	}
	if err := p.root.WriteFile(ownerFile, nil, 0o600); err != nil { // of an agent that was killed right then
		t.Fatal(err)
	}
	first, err := p.readOwner()
	if again, e := p.readOwner(); err != nil || e != nil || first != again || !lvm.ValidName(first) {
		t.Errorf("%q, then %q: %v, %v", first, again, err, e)
	}
}

// TestNode makes a device file of a loop device's, as of a volume, and gives it to a user with the other disks.
func TestNode(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making device files needs root")
	}
	const device = "/dev/loop0"
	if _, err := os.Stat(device); err != nil {
		t.Skip(err)
	}
	p := testPool(t)
	file, err := p.makeFile(t.Context(), "vm", "scratch.raw", func(file string) error { return node(file, device) })
	if err != nil {
		t.Fatal(err)
	}
	var want, got unix.Stat_t
	if err := errors.Join(unix.Stat(device, &want), p.Give("vm", 64055, 107), unix.Stat(file, &got)); err != nil {
		t.Fatal(err)
	}
	if got.Rdev != want.Rdev || got.Uid != 64055 || got.Mode != unix.S_IFBLK|0o600 {
		t.Errorf("%+v", got)
	}
	if _, err := p.makeFile(t.Context(), "vm", "scratch.raw", func(string) error { return nil }); err == nil {
		t.Error("made twice")
	}
	fails := func(string) error { return fs.ErrInvalid }
	if _, err := p.makeFile(t.Context(), "new", "scratch.raw", fails); err == nil {
		t.Error("a device that is not made is no error")
	}
	if vms, err := p.List(); err != nil || len(vms) != 1 {
		t.Error(vms, err)
	}
	if err := node(filepath.Join(p.dir, "x"), p.dir); err == nil {
		t.Error("a directory is a device")
	}
}
