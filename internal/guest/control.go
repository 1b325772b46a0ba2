package guest

import (
	"bufio"
	"encoding/json"
	"io"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Phase is how far grange-guest has come with one job.
type Phase string

// The phases, in order.
const (
	Ready   Phase = "ready"   // the VM is up, and does not know the job
	Given   Phase = "given"   // the job was handed over; the VM is being made ready for it
	Running Phase = "running" // the command runs
	Failed  Phase = "failed"  // the job was not started; State.Message says why
	Exited  Phase = "exited"  // the job has ended
	Gone    Phase = "gone"    // nothing of the job is left, and its port is free

	// Leaving, without a job, is of grange-guest itself: it was asked to end, as at a reboot, and answers no ping until
	// the next Ready.
	Leaving Phase = "leaving"
)

// State is what grange-guest tells the agent at every change: how one job is doing. Asked by a hello it tells of each
// job it was ever given, and then, by a Ready without a job, that these are all.
type State struct {
	Job     string `json:"job,omitempty"` // its ID
	Phase   Phase  `json:"phase"`
	Message string `json:"message,omitempty"`
	// failed, for the job's working directory is not in the VM: no other VM of the image has it
	NoDir bool          `json:"no_dir,omitempty"`
	Boot  time.Duration `json:"boot,omitempty"` // from the kernel's first instruction to grange-guest's
	Exit  *Exit         `json:"exit,omitempty"`
	Pings bool          `json:"pings,omitempty"` // with a Ready without a job: this grange-guest answers pings
	Roots bool          `json:"roots,omitempty"` // with a Ready without a job: this grange-guest takes Job.Root
	// Shares, with a Ready without a job: this grange-guest takes Bind.Tag.
	Shares bool `json:"shares,omitempty"`
	SFTP   bool `json:"sftp,omitempty"` // with a Ready without a job: this grange-guest takes Bind.Port
	// Services, with a Ready without a job: this grange-guest takes Job.Services.
	Services bool   `json:"services,omitempty"`
	Disks    bool   `json:"disks,omitempty"`  // with a Ready without a job: this grange-guest takes Job.Disks
	IPv6     bool   `json:"ipv6,omitempty"`   // with a Ready without a job: this grange-guest takes Job.Address6
	Clocks   bool   `json:"clocks,omitempty"` // with a Ready without a job: this grange-guest takes Clock
	Holds    bool   `json:"holds,omitempty"`  // with a Ready without a job: this grange-guest takes Hold and Release
	Clock    *Clock `json:"clock,omitempty"`  // alone: the answer to a ControlMessage with the same number
	Pong     uint64 `json:"pong,omitempty"`   // alone: the ping with this number is answered
	Load     *Load  `json:"load,omitempty"`   // with Pong: how busy the VM is. An older grange-guest sends none
	// View, alone, is what its kernel sees of the machine. An older grange-guest sends none.
	View *farm.GuestView `json:"view,omitempty"`
}

// Load is how busy a VM is, as its kernel has counted since it started.
type Load struct {
	CPU     uint64 `json:"cpu,omitempty"`      // time of all its CPUs, idle or not, in hundredths of a second
	Wait    uint64 `json:"wait,omitempty"`     // of that: idle, for programs waited for a disk
	SwapIn  uint64 `json:"swap_in,omitempty"`  // pages that came back from swap
	SwapOut uint64 `json:"swap_out,omitempty"` // pages that went there
}

// Exit is how a job ended, with what it used.
type Exit struct {
	Code   int           `json:"code"`             // exit status; 128+signal when a signal ended it
	Signal int           `json:"signal,omitempty"` // the signal, if one ended it
	User   time.Duration `json:"user,omitempty"`   // CPU time of the job and its waited-for children
	System time.Duration `json:"system,omitempty"`
	MaxRSS int64         `json:"maxrss,omitempty"` // KiB, of the largest process
	// OOMKills is how many processes the VM's kernel killed for want of memory meanwhile, in all its jobs.
	OOMKills int `json:"oom_kills,omitempty"`
}

// Job is all that grange-guest needs to run the job. The agent writes it: a caller cannot choose who it is.
type Job struct {
	ID       string   `json:"id"`
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`
	Dir      string   `json:"dir"`           // working directory; a missing one fails the job
	Raw      *Raw     `json:"raw,omitempty"` // while it is carried; an older grange-guest ignores it
	Terminal *Size    `json:"terminal,omitempty"`
	// OneOutput makes standard output and error one file; an older grange-guest ignores it.
	OneOutput bool     `json:"one_output,omitempty"`
	User      User     `json:"user"`
	Hostname  string   `json:"hostname"`
	Binds     []Bind   `json:"binds,omitempty"`
	Root      *Root    `json:"root,omitempty"`    // nil: the job runs in what the VM started in
	Scratch   string   `json:"scratch,omitempty"` // serial of the disk to mount at /tmp
	Disks     []Disk   `json:"disks,omitempty"`   // beside Scratch; an older grange-guest takes none
	Network   bool     `json:"network,omitempty"` // set up the user-mode network
	Address   *Address `json:"address,omitempty"` // of the first network card, which is on a bridge
	// Address6 is of the first network card, too. An older grange-guest takes none.
	Address6 *Address `json:"address6,omitempty"`
	Files    []File   `json:"files,omitempty"`
	Process
	Hook []byte `json:"hook,omitempty"` // the site's script, run as root before the job
	// Prologs are paths of scripts, of Files, that run before the job as its user: see inside.runProlog.
	Prologs []string `json:"prologs,omitempty"`
	Port    int      `json:"port,omitempty"` // number of the job port that its session uses
	// Shared says that other jobs may run in this VM before, beside and after this one: it gets its own view of the
	// mounts, only its own processes end with it, and the site's script has run if it did for an earlier one.
	Shared bool `json:"shared,omitempty"`
	// Steps puts an srun into the job's PATH, behind the image's own, that asks the host's: the job's caller answers.
	Steps bool `json:"steps,omitempty"`
	// Services of the host are reached on the VM's own loopback; an older grange-guest takes none.
	Services []Service `json:"services,omitempty"`
}

// Service is what a host lets a VM reach by the service port.
type Service struct {
	Name string `json:"name"`
	Port uint16 `json:"port"` // of 127.0.0.1 and ::1 in the VM
}

// Root is a disk with the file system of a container, in which the job runs. It is never written to.
type Root struct {
	Serial  string `json:"serial"`
	Format  string `json:"format"`            // "erofs" or "squashfs"
	Workdir string `json:"workdir,omitempty"` // the image's own, which is made if it is not there
}

// Process is the state of the calling process that the command inherits, as it would by execve(2).
type Process struct {
	Limits []Limit `json:"limits,omitempty"` // none: those of grange-guest
	Umask  *uint32 `json:"umask,omitempty"`  // nil: that of grange-guest; an older grange-guest ignores it
	// Ignored and Blocked are signals: bit n-1 is signal n. An older grange-guest ignores both.
	Ignored uint64 `json:"ignored,omitempty"`
	Blocked uint64 `json:"blocked,omitempty"`
	// An older grange-guest ignores these. Of Null and Closed, bit n is standard file n.
	Nice   int   `json:"nice,omitempty"`
	Null   uint8 `json:"null,omitempty"`
	Closed uint8 `json:"closed,omitempty"`
}

// Ignores reports whether a signal is ignored.
func (p Process) Ignores(s syscall.Signal) bool { return p.Ignored>>(s-1)&1 == 1 }

// Blocks reports whether a signal is blocked.
func (p Process) Blocks(s syscall.Signal) bool { return p.Blocked>>(s-1)&1 == 1 }

// Resources is how many resources setrlimit(2) knows, of the numbers 0, 1 and so on.
const Resources = 16

// Limit is one of setrlimit(2), which has the same numbers on every host and guest of x86-64.
type Limit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"` // of 2^64-1: there is none
	Hard     uint64 `json:"hard"`
}

// Disk is a scratch disk or swap.
type Disk struct {
	Serial string `json:"serial,omitempty"` // "": there is no disk, and Path is in memory
	Path   string `json:"path,omitempty"`   // where it is mounted; "": the VM swaps to it
	Size   uint64 `json:"size,omitempty"`   // of what is in memory, in bytes
}

// User is who the job runs as.
type User struct {
	Name   string  `json:"name"`
	UID    uint32  `json:"uid"`
	GID    uint32  `json:"gid"`
	Home   string  `json:"home"`
	Shell  string  `json:"shell"`
	Groups []Group `json:"groups,omitempty"`
}

// Group is one of a user's groups.
type Group struct {
	Name string `json:"name"`
	GID  uint32 `json:"gid"`
}

// Bind is a directory of the host that the job sees. The n-th one talks over stream StreamBind+n.
type Bind struct {
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
	Tag      string `json:"tag,omitempty"` // virtiofs has it by this tag; "": it is a stream. An older guest takes none
	// Stream has the stream be there too: for a kernel that has no virtiofs.
	Stream bool   `json:"stream,omitempty"`
	Port   string `json:"port,omitempty"` // sftp-server answers at this port of the VM. An older guest takes none
}

// Address is where a VM is on its host's network.
type Address struct {
	CIDR    string   `json:"cidr"`
	Gateway string   `json:"gateway,omitempty"`
	DNS     []string `json:"dns,omitempty"`
	OnLink  []string `json:"on_link,omitempty"` // addresses outside the network that are on the wire all the same
}

// File is written into the guest before the job starts.
type File struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	// Own makes it the job's own: readable, writable and executable for the job's user alone. It never replaces a file
	// of the image.
	Own bool `json:"own,omitempty"`
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ControlMessage is one line from the agent: a hello asks for all States, a job starts it, an end kills what is left of
// one and frees its port. A job that is known, or was, is not started again. A power-off lets the VM end in order, as
// its power button would: what runs in it is asked to end, and disks are written. It is not answered; the VM goes.
type ControlMessage struct {
	Hello    bool   `json:"hello,omitempty"`
	Job      *Job   `json:"job,omitempty"`
	End      string `json:"end,omitempty"` // ID of a job
	PowerOff bool   `json:"power_off,omitempty"`
	Ping     uint64 `json:"ping,omitempty"` // a number to answer at once, for a guest that said it does
	// Clock asks a guest that said that it takes it for its time, after Step was added. Only a difference is sent,
	// which is right whenever the guest reads it.
	Clock *Clock `json:"clock,omitempty"`
	// Hold has the guest keep back what comes by the job ports, before Clock is answered: the machine is about to be
	// stopped. Release, when its clock is set again, has the jobs get it. A guest that is not told so releases it by
	// itself when it has run for some seconds.
	Hold    bool `json:"hold,omitempty"`
	Release bool `json:"release,omitempty"`
}

// Clock is a question about the guest's clock, and its answer.
type Clock struct {
	Number uint64        `json:"number"`
	Step   time.Duration `json:"step,omitempty"` // of the question: to be added first
	Now    int64         `json:"now,omitempty"`  // of the answer: nanoseconds since 1970
}

// HostMessage is one line from `grange exec` on StreamMessages.
type HostMessage struct {
	Signal int   `json:"signal,omitempty"`
	Resize *Size `json:"resize,omitempty"`
	Broken byte  `json:"broken,omitempty"` // StreamStdout or StreamStderr: nobody reads it any more
	// Publish has StreamPublish carry connections to these ports of the VM's loopback; an older guest carries none.
	Publish []uint16 `json:"publish,omitempty"`
}

// GuestMessage is one line to `grange exec` on StreamMessages.
type GuestMessage struct {
	Exit   *Exit  `json:"exit,omitempty"`
	Failed string `json:"failed,omitempty"` // the job was not started
}

// The longest lines that are read. A job brings its environment and its script; what comes from a guest is a few words,
// and a hostile one shall not fill its host's memory.
const (
	MaxJobLine   = 128 << 20
	MaxGuestLine = 64 << 10
)

// WriteLine writes v as one line. The empty line before it ends whatever half line an earlier writer left.
func WriteLine(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(append([]byte{'\n'}, text...), '\n'))
	return err
}

// Lines calls each with every line of r that is a T, and skips what is none, until r ends or a line is longer than
// limit bytes; it returns why.
func Lines[T any](r io.Reader, limit int, each func(T)) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, limit)
	for scanner.Scan() {
		var v T
		if json.Unmarshal(scanner.Bytes(), &v) == nil && len(scanner.Bytes()) > 0 {
			each(v)
		}
	}
	if err := scanner.Err(); err != nil {
		return err
	}
	return io.EOF
}
