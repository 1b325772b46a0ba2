// Package hyper is what the agent needs of a hypervisor. It knows nothing of images, jobs or callers: it is handed
// paths, pins and sockets, and keeps our opaque metadata beside each machine.
package hyper

import (
	"context"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/numa"
)

// Machine is all a hypervisor needs to know to start one VM.
type Machine struct {
	ID      string // UUID in text form
	Name    string // unique on the host; "grange-" and the first characters of ID
	Plan    farm.Plan
	Boot    Boot
	Disks   []Disk
	Ports   []Port
	Shares  []Share
	Card    Card
	Purpose farm.Purpose
	// farm.Shape's: "host-passthrough", "host-model", "maximum" or a model's name; "": as the purpose says
	CPUModel string
	Cache    string      // of all disks, farm.Shape's; "": as the purpose says
	Tuning   DiskTuning  // of its disks; Cache goes before what it says
	Move     MoveSockets // by which it comes, or may go to another host; the zero value: it does neither
	Console  string      // unix socket of the serial console, made by the hypervisor
	Display  string      // unix socket of the display, which QEMU makes; "": it has none
	UID      uint32      // QEMU's user, who has no account; 0: as the hypervisor has it
	// QEMU's group: of that user, or by which a batch system tracks it; 0: as the hypervisor has it
	Group    uint32
	Reboots  bool   // a guest that reboots goes on in the same machine; otherwise its machine ends
	Watchdog bool   // it has a watchdog device, which a guest may start and must reset from then on: see Event
	Metadata []byte // kept beside the machine, returned by List
	// Enter is called with the process that is about to become QEMU, before it takes any memory, where the host lets a
	// driver hold it there; elsewhere it is not called. It must return soon. nil: nobody wants that.
	Enter func(pid int)
	// Held reports whether what Enter did keeps the process from running for now, as in control groups that are frozen:
	// Start waits as long, and counts that time for nothing. nil: never.
	Held func() bool
}

// DiskTuning is how disks are reached. The zero value: as the purpose says.
type DiskTuning struct {
	Cache     string // in libvirt's words: "writeback", "none"
	IO        string // "native", "threads" or "io_uring"; native goes past the page cache only
	IOThreads int    // that disks are spread over; 0: one
	Queues    int    // of each disk; 0: one for each vCPU
	Discard   string // of what a guest deletes: "unmap" gives it back, "ignore" does not; "": unmap
}

// Boot is a kernel that the hypervisor loads itself. Without one the machine boots from its first disk, by BIOS, or by
// UEFI where the disk has nothing for BIOS.
type Boot struct {
	Kernel, Initrd, Cmdline string
	UEFI                    bool
}

// Disk is one block device. The guest finds it by Serial (/dev/disk/by-id/virtio-SERIAL).
type Disk struct {
	Serial   string
	Path     string
	Format   string // "raw" or "qcow2"; always told, never probed
	Block    bool   // Path is a device, not a file
	Base     string // of an overlay: the file that it lies over, which QEMU reads, too
	ReadOnly bool
	CDROM    bool // a seed ISO
}

// Card is a network card, and what is at the other end of its cable. The zero value: the machine has none.
type Card struct {
	Type   CardType
	Bridge string // of BridgeCard: its name on the host
	Source string // of MacvtapCard: the host's card; of FunctionCard: its address on the PCI bus, as 0000:01:10.0
	MAC    string // as "52:54:0a:66:00:14"; "": the hypervisor chooses
	MTU    int    // of BridgeCard, where the guest has to know of an unusual one; 0: as the bridge has it
}

// Group is the file of the IOMMU group of a FunctionCard, which QEMU opens.
func (c Card) Group() (string, error) {
	group, err := os.Readlink(filepath.Join("/sys/bus/pci/devices", c.Source, "iommu_group"))
	return filepath.Join("/dev/vfio", filepath.Base(group)), err
}

// CardType is what a card is plugged into.
type CardType string

// Types of cards.
const (
	NoCard     CardType = ""
	UserCard   CardType = "user"   // the user-mode network inside QEMU's process
	BridgeCard CardType = "bridge" // a bridge of the host, by a tap device that goes with the machine
	// a card of the host, by a macvtap device that goes with the machine
	MacvtapCard CardType = "macvtap"
	// a virtual function of a card of the host, which vfio-pci has
	FunctionCard CardType = "function"
)

// Port is a virtio-serial port: the guest sees Name under /dev/virtio-ports, the host has the unix socket Path.
type Port struct {
	Name, Path string
	Served     bool // somebody listens at Path, and the machine's process connects when it starts
}

// Share is a directory of the host that a program serves by vhost-user: the guest mounts Tag as virtiofs. The program
// reads and writes the guest's memory, and the machine's process connects to its unix socket Path when it starts.
type Share struct{ Tag, Path string }

// State is what a machine does now.
type State string

// States.
const (
	Paused  State = "paused" // made and not yet resumed, or suspended
	Running State = "running"
	Gone    State = "gone"
)

// Found is one machine that runs.
type Found struct {
	ID, Name string
	State    State
	Metadata []byte
	PID      int    // of its QEMU process; 0 where there is none (the fake)
	Started  uint64 // when that process started, in clock ticks since boot: tells it from a later one with the same PID
}

// Applied says what the hypervisor could and could not do of what the plan asked.
type Applied struct {
	Accelerator string // "kvm" or "tcg"
	CPUMode     string // "host-passthrough", "host-model", "custom", "maximum"
	CPUModel    string // of the mode "custom"
	Cache       string // cache mode of the disks; empty without disks
	IO          string // how QEMU reaches them: "threads", "native"
	PID         int    // of its QEMU process; 0 where there is none (the fake)
	UID         uint32 // QEMU's user, where that is the machine's own
	Started     uint64 // when that process started, as in Found
	// what confines QEMU, as the kernel has it, for people: "AppArmor, a profile of grange"; empty: only its user
	Confinement string
	Emulated    string   // why the machine is emulated although KVM was wanted; empty otherwise
	Warnings    []string // one sentence for each setting that could not be applied, with the reason
}

// Event reports that a machine ended, for whatever reason, or what one of the flags says. An event with a flag is no
// end.
type Event struct {
	ID     string
	End    End
	Reason string // for people; of an end, and of NoSpace
	// NoSpace: the host's file system had no room for what the guest wrote, and the hypervisor has stopped the
	// machine's vCPUs. Resume has it write again: the guest notices nothing where there is room by then, and is stopped
	// again where there is not.
	NoSpace bool
	// Watchdog: the guest started its watchdog and did not reset it in time. The machine runs on, and its watchdog is
	// stopped until the guest starts it again. Time counts while the machine runs, also while its process is frozen,
	// which the hypervisor does not see.
	Watchdog bool
	// Rebooted: the guest begins anew in the same machine, and its watchdog is stopped.
	Rebooted bool
	// Resumed: the machine's vCPUs run for the first time, or again after a stop, whoever wanted that.
	Resumed bool
}

// End is how a machine ended.
type End string

// Ends. The zero value is not known.
const (
	PoweredOff End = "powered off" // the guest did that, of its own or because Shutdown asked it to
	Failed     End = "failed"      // the guest crashed, or the machine's process failed or was killed, as Stop does
)

// Hypervisor is implemented by libvirt/ and fake/; hypertest/ holds both to this contract.
//
// Every call that takes a context has bounded time, and may fail with farm.Unavailable while the hypervisor's daemon is
// away; calls succeed again once it is back, without a new Hypervisor. Machines live on meanwhile.
type Hypervisor interface {
	// Start makes the machine with its vCPUs stopped, so that pins can be checked before the first instruction.
	// When it fails nothing is left, except when the daemon died half-way: then List or Sweep finds the rest.
	Start(ctx context.Context, m Machine) (Applied, error)
	Resume(ctx context.Context, id string) error
	Suspend(ctx context.Context, id string) error
	// Shutdown presses the machine's power button and returns at once. A guest may take its time, or ignore it
	// all.
	Shutdown(ctx context.Context, id string) error
	// Stop ends the machine now, daemon or no daemon, and returns when its process is gone. A machine that is gone
	// already is no error.
	Stop(ctx context.Context, id string) error
	// List returns our machines only.
	List(ctx context.Context) ([]Found, error)
	// State reports what one machine does now: Paused whoever paused it, Gone when there is none. It does not wait for
	// the machine itself.
	State(ctx context.Context, id string) (State, error)
	// Observe reads where the machine's threads may really run, from the kernel and not from the daemon's memory.
	Observe(ctx context.Context, id string) (numa.Observed, error)
	// Sweep ends processes and removes files of ours that no machine in List owns. What the daemon keeps of a machine
	// that has ended is dropped behind its back, again and again where the daemon refuses: see Daemon.Stuck.
	Sweep(ctx context.Context) error
	// Daemon returns at once, whatever the daemon does.
	Daemon() Daemon
	// Events reports what happens to machines until ctx ends. An event may be lost while the daemon is away: List is
	// the truth about ends. Which machines stand still for want of space is reported anew whenever a daemon is there
	// again.
	Events(ctx context.Context) <-chan Event
	Mover
}
