package machine

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/vmimage"
)

// Machine is one VM and what it has on the host: a directory of sockets and one of disks.
type Machine struct {
	host     *Host
	ID, Name string
	Sockets  string // directory
	Disks    string // directory; there is none without disks
	User     User
	Applied  hyper.Applied
	Control  *control
	Console  *console
	Pulse    *heartbeat
	sight    sight
	shares   []Share
	lost     func(error)           // is called when nobody serves one of them any more; nil: nobody follows
	Beside   func(context.Context) // runs while the machine is watched; nil: nothing does
	cloud    bool                  // its disks are in the area of cloud VMs
	Made     bool                  // the directories are ours, and nobody else's
	Checked  atomic.Bool           // pins are as planned: its CPUs may run
	cancel   context.CancelFunc
	Done     <-chan struct{} // from Watch on: closed by Unwatch
	watching sync.WaitGroup
}

// appliedFile keeps what the hypervisor could not do, over a restart of the agent. It is written right behind the first
// instruction, and before any job is handed over: a VM without it has no job.
const appliedFile = "applied.json"

// Path is where a socket or file of the machine is.
func (m *Machine) Path(name string) string { return filepath.Join(m.Sockets, name) }

// Watch connects to the VM until Unwatch.
func (m *Machine) Watch() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.Done = cancel, ctx.Done()
	m.watching.Go(func() { m.Control.run(ctx) })
	m.watching.Go(func() { m.Console.run(ctx) })
	m.watching.Go(func() { m.Pulse.run(ctx) })
	if m.Beside != nil {
		m.watching.Go(func() { m.Beside(ctx) })
	}
	for _, s := range m.shares {
		m.watching.Go(func() { m.watchShare(ctx, s, m.lost) })
	}
}

// Unwatch returns when nothing is connected to the VM any more. The VM goes on.
func (m *Machine) Unwatch() {
	if m.cancel != nil {
		m.cancel()
		m.watching.Wait()
	}
}

// maxLastWords bounds how much of a console becomes part of a message, in bytes.
const maxLastWords = 3000

// LastWords is the end of the console, and the kernel's reason to panic if it gave one, ready to follow a sentence.
// The guest's text begins on the second line. Callers that may not read the console are shown the first line only.
func (m *Machine) LastWords() string {
	m.Console.awaitEnd(time.Second)
	return quoted(m.Console.lastLines(consoleTail))
}

// quoted is the end of a console as LastWords puts it.
func quoted(console string) string {
	const most = 12
	lines := strings.Split(strings.TrimRight(console, "\n"), "\n")
	last := strings.Join(lines[max(0, len(lines)-most):], "\n")
	words := "; "
	for _, line := range lines {
		if strings.Contains(line, "Kernel panic - ") {
			words = " in a kernel panic; "
			if !strings.Contains(last, line) {
				last = farm.Clean(line, 200) + "\n" + last
			}
			break
		}
	}
	if last == "" {
		return words + "its console is empty"
	}
	return words + farm.ConsoleFollows + "\n  " + strings.ReplaceAll(farm.CleanLines(last, maxLastWords), "\n", "\n  ")
}

// NamePrefix starts the name of every VM of ours.
const NamePrefix = "grange-"

// ScratchSerial is how a guest finds its scratch disk.
const ScratchSerial = "scratch"

// MoveSockets are in a directory of their own.
func (m *Machine) MoveSockets() hyper.MoveSockets {
	return hyper.MoveSockets{Memory: m.Path("move/memory"), Disks: m.Path("move/disks")}
}

// PowerOff asks the guest to end in order. An error means that it was not told: its ACPI button is what is left.
func (m *Machine) PowerOff(ctx context.Context) error {
	return m.Control.say(ctx, guest.ControlMessage{PowerOff: true})
}

// Frozen reports whether a machine's process, if it has one, cannot hear what the hypervisor says to it.
func Frozen(pid int) bool { return pid != 0 && allotment.Frozen(os.DirFS("/"), pid) }

// HasWatchdog reports whether a VM gets a watchdog. Kernels of micro images have no driver for it.
func HasWatchdog(s config.Heartbeat, image vmimage.Image) bool {
	return s.Watchdog && image.Kind == vmimage.Disk
}

// Follower is the owner of a machine: it learns how the guest does. Its functions are called without locks.
type Follower struct {
	Stopped func() bool             // whether the owner has its CPUs stopped; nil: it never does
	Changed func(unresponsive bool) // the guest has become unresponsive, or is no longer
	Floods  func(text string)       // it goes on sending more than is read of it
	Plan    func() farm.Plan        // what the guest should see
	Differs func(text string)       // it sees something else
	// Lost is called when nobody serves one of its directories any more; nil: it has none
	Lost func(error)
}

// Follow reports to f from now on.
func (m *Machine) Follow(f Follower) {
	if f.Stopped != nil {
		m.Pulse.stopped = func() bool { return f.Stopped() || Frozen(m.Applied.PID) }
	}
	m.Pulse.changed = f.Changed
	m.lost = f.Lost
	m.Control.Flood.notice = func() { f.Floods(floodNotice) }
	m.sight.compare = func(v farm.GuestView) []string {
		return guestDiffers(f.Plan(), m.Applied, m.host.Topology().CPU, v)
	}
	m.sight.notice = f.Differs
}

// ReadApplied reads what an earlier agent has kept of the machine.
func (m *Machine) ReadApplied() error {
	text, err := os.ReadFile(m.Path(appliedFile))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &m.Applied)
}

// KeepApplied writes it for the next agent.
func (m *Machine) KeepApplied() error {
	text, err := json.Marshal(m.Applied)
	if err != nil {
		return err
	}
	return os.WriteFile(m.Path(appliedFile), text, 0o600)
}
