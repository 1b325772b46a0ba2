package machine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/ledger"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/vmimage"
)

// Hypervisor is a driver together with who its VMs' files must belong to.
type Hypervisor interface {
	hyper.Hypervisor
	QEMUOwner(ctx context.Context) (uid, gid int, err error)
	// OwnGroup returns the group with which a machine can run as a user of its own; why says why it cannot. tracked is
	// the machine's group where a batch system has given it one.
	OwnGroup(ctx context.Context, uid, tracked uint32) (gid uint32, why string, err error)
}

// Options are what machines need of the agent.
type Options struct {
	Hyper    Hypervisor
	Images   *vmimage.Store
	Ledger   *ledger.Ledger
	Names    *names.Service
	Log      *slog.Logger
	Config   func() config.Agent
	Topology func() farm.Topology
	Areas    Areas
}

// Host is what all machines of a host share: hypervisor, ledger, disks, users.
type Host struct {
	Options
	// that QEMU runs as where its VM has no user of its own; set once the hypervisor has answered
	UID, GID  int
	FreeSpace func(dir string) (farm.Bytes, error) // of its file system; tests have their own
	users     users
}

// NewHost returns a host without machines.
func NewHost(o Options) *Host {
	h := &Host{Options: o, FreeSpace: freeSpace}
	h.users.init()
	return h
}

// NUMARequest is what the planner is asked for a shape, on the threads that are allowed.
func (h *Host) NUMARequest(s farm.Shape, allowed farm.CPUSet) numa.Request {
	return numa.Request{VCPUs: s.CPUs, Memory: s.Memory, Pages: s.Pages, Allowed: allowed,
		Service: h.Config().ReservedCPUs, Guest: s.Guest, Threads: s.Threads, Emulator: s.Emulator, Cells: s.Cells}
}

// AllCPUs are the threads of all cores.
func (h *Host) AllCPUs() farm.CPUSet {
	var all farm.CPUSet
	for _, c := range h.Topology().Cores {
		all = all.Or(c.Threads)
	}
	return all
}

// Holder names the VM to whoever finds its CPUs in use, with its user and command unless those are private.
func (h *Host) Holder(name, user, command string) string {
	if h.Config().PrivateVMs {
		return name
	}
	return fmt.Sprintf("%s (%s: %s)", name, user, command)
}

// ImageOf is the image that a VM was made from; one that is not known any more counts as one without a disk.
func (h *Host) ImageOf(digest string) vmimage.Image {
	image, err := h.Images.Get(digest)
	if err != nil {
		return vmimage.Image{Kind: vmimage.Kernel}
	}
	return image
}

// BootID identifies one boot of the host.
func BootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// New returns a machine that has nothing on the host yet.
func (h *Host) New(id, name string) *Machine {
	c := h.Config()
	m := &Machine{host: h, ID: id, Name: name, Sockets: filepath.Join(c.RunDir, "vm", name),
		Disks: filepath.Join(h.DisksDir(), name)}
	m.Control = newControl(m.Path(guest.ControlPort))
	m.Control.views = m.sight.take
	m.Console = newConsole(m.Path("console"))
	m.Pulse = &heartbeat{control: m.Control, settings: func() config.Heartbeat { return h.Config().Heartbeat },
		state:   func(ctx context.Context) (hyper.State, error) { return h.Hyper.State(ctx, id) },
		stopped: func() bool { return Frozen(m.Applied.PID) }, wentOn: m.WentOn,
		expires: NewPace(5)}
	return m
}

// DisksDir holds a directory of disks for each VM that has any.
func (h *Host) DisksDir() string { return DisksDir(h.Config()) }

// DisksDir is where that is by a configuration.
func DisksDir(c config.Agent) string { return c.Areas.Jobs.Path }

// RemoveFiles removes what a machine that has ended had.
func (h *Host) RemoveFiles(m *Machine) {
	defer h.ReturnUser(m.Name)
	if !m.Made {
		return
	}
	defer h.removeVolumes(m)
	if err := EndShares(m.Sockets); err != nil {
		h.Log.Error("what served a vm's directories goes on", "vm", m.Name, "error", err)
	}
	for _, dir := range []string{m.Sockets, m.Disks} {
		if err := os.RemoveAll(dir); err != nil {
			h.Log.Error("files of a vm stay", "vm", m.Name, "error", err)
		}
	}
}
