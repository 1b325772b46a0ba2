package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/lvm"
	"github.com/grange-project/grange/internal/mounts"
	"github.com/grange-project/grange/internal/vmimage"
)

// Areas are the directories and volumes of disks: of jobs' VMs, and of cloud VMs, which may be the same.
type Areas struct{ Jobs, Cloud *disk.Pool }

// OpenAreas opens them, and makes their directories if need be. A directory on a network file system is refused.
func OpenAreas(c config.Areas) (a Areas, err error) {
	if a.Jobs, err = openArea(c.Jobs); err != nil {
		return a, err
	}
	if a.Cloud = a.Jobs; c.Cloud.Path != c.Jobs.Path {
		a.Cloud, err = openArea(c.Cloud)
	}
	return a, err
}

func openArea(c config.Area) (*disk.Pool, error) {
	p, err := disk.Open(c.Path)
	if err != nil {
		return nil, err
	}
	if err := CheckLocal(c.Path); err != nil {
		return nil, err
	}
	p.SetQuota(c.Quota)
	return p, nil
}

// UseVolumes lets the areas make volumes of LVM. It removes what is left of VMs that have ended; see
// disk.Pool.CleanVolumes.
func (a Areas) UseVolumes(ctx context.Context, c config.Areas) error {
	if err := a.Jobs.UseVolumes(ctx, VolumesOf(c.Jobs)); err != nil || a.Cloud == a.Jobs {
		return err
	}
	return a.Cloud.UseVolumes(ctx, VolumesOf(c.Cloud))
}

// VolumesOf are the volumes of an area.
func VolumesOf(c config.Area) disk.Volumes {
	return disk.Volumes{Group: c.VolumeGroup, ThinPool: c.ThinPool, Wipe: c.Wipe}
}

// Pools are both areas, each once.
func (a Areas) Pools() []*disk.Pool {
	if a.Jobs == nil {
		return nil
	}
	if a.Cloud == a.Jobs {
		return []*disk.Pool{a.Jobs}
	}
	return []*disk.Pool{a.Jobs, a.Cloud}
}

// Space is ledger.Host.Space: at is an area of files, or a place of volumes.
func (a Areas) Space(at string, promised func(at string) map[string]farm.Bytes) (farm.DiskSpace, error) {
	mine, other := a.Jobs, a.Cloud
	switch at {
	case ledger.JobFiles:
	case ledger.CloudFiles:
		mine, other = other, mine
	default:
		return a.volumeSpace(at, promised(at))
	}
	if mine == other {
		all := promised(ledger.JobFiles)
		for name, size := range promised(ledger.CloudFiles) {
			all[name] = size
		}
		return mine.Space(all)
	}
	s, err := mine.Space(promised(at))
	if err != nil || !mine.SameFileSystem(other) {
		return s, err
	}
	otherAt := ledger.CloudFiles
	if at == ledger.CloudFiles {
		otherAt = ledger.JobFiles
	}
	owed := other.Owed(promised(otherAt))
	if owed > s.Free {
		s.Short = max(s.Short, owed-s.Free)
	}
	s.Free -= min(s.Free, owed)
	return s, nil
}

func (a Areas) volumeSpace(place string, promised map[string]farm.Bytes) (s farm.DiskSpace, err error) {
	for _, p := range a.Pools() {
		if s, err = p.VolumeSpace(place, promised); err == nil {
			return s, nil
		}
	}
	return s, err
}

// CleanVolumes removes what is left of VMs that have ended, and reads anew what LVM has. done is called for each volume
// that it removed, or could not.
func (a Areas) CleanVolumes(ctx context.Context, done func(lvm.Volume, error)) error {
	for _, p := range a.Pools() {
		if err := p.CleanVolumes(ctx, done); err != nil {
			return err
		}
	}
	return nil
}

// removeLimit is for LVM to remove the volumes of one VM.
const removeLimit = time.Minute

// CheckLocal refuses a directory that lies on a network file system: what one host writes there another may lock, delay
// or lose, and QEMU's own checks say nothing of it.
func CheckLocal(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("file system of %s: %w", dir, err)
	}
	if name := mounts.NotLocal(int64(s.Type)); name != "" {
		return onNetwork(dir, name)
	}
	return nil
}

// CheckMounts is CheckLocal of all areas, as far as their names tell: a file system whose server does not answer is
// refused before anything is opened there.
func CheckMounts(c config.Areas) error {
	table, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	defer table.Close()
	all, err := mounts.All(table)
	if err != nil {
		return err
	}
	for _, dir := range []string{c.Jobs.Path, c.Cloud.Path, c.Images.Path} {
		if m, _ := mounts.Over(all, dir); m.Network() || strings.HasPrefix(m.Type, "fuse") {
			return onNetwork(dir, m.Type)
		}
	}
	return nil
}

func onNetwork(dir, name string) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeNetworkFS,
		Message: fmt.Sprintf("%s is on %s: disks of VMs are not kept on network file systems, where a server that hangs "+
			"stops every VM of the host", dir, name),
		Hint: "name a directory of a local disk as state_dir, or in [areas], of the agent's configuration"}
}

// DiskCharge is what the disks of a VM of an area take, with what its network does.
func DiskCharge(name, area string, image vmimage.Image, s farm.Shape, overlay farm.Bytes,
	v disk.Volumes) ledger.Charge {
	c := ledger.Charge{Disks: name, Area: area, Bytes: DiskNeed(image, s, overlay), Bandwidth: s.Bandwidth}
	for _, d := range s.ScratchDisks() {
		if place := v.PlaceOf(d.On); place != "" {
			if c.Volumes == nil {
				c.Volumes = map[string]farm.Bytes{}
			}
			c.Volumes[place] += d.Size
		}
	}
	return c
}

// NewCloud is New of a cloud VM's machine.
func (h *Host) NewCloud(id, name string) *Machine {
	m := h.New(id, name)
	m.cloud, m.Disks = true, filepath.Join(h.CloudDir(), name)
	return m
}

// CloudDir holds a directory for each cloud VM.
func (h *Host) CloudDir() string { return h.Config().Areas.Cloud.Path }

// Pool is where a machine's disks are made.
func (m *Machine) Pool() *disk.Pool {
	if m.cloud {
		return m.host.Areas.Cloud
	}
	return m.host.Areas.Jobs
}

// owners are the users whom disks of VMs belong to.
func (h *Host) owners() (map[uint32]bool, error) {
	all := map[uint32]bool{}
	for _, p := range h.Areas.Pools() {
		owners, err := p.Owners()
		if err != nil {
			return nil, err
		}
		for uid := range owners {
			all[uid] = true
		}
	}
	return all, nil
}

// removeVolumes removes what a machine that has ended had on LVM. What cannot be removed now is cleaned later.
func (h *Host) removeVolumes(m *Machine) {
	p := m.Pool()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	if err := p.RemoveVolumes(ctx, m.Name); err != nil {
		h.Log.Warn("volumes of a vm stay, and are tried again", "vm", m.Name, "error", err)
	}
}

// RemoveDisks removes all disks of a machine that has ended, with its directory.
func (h *Host) RemoveDisks(m *Machine) error {
	err := os.RemoveAll(m.Disks)
	if err == nil {
		h.removeVolumes(m)
	}
	return err
}
