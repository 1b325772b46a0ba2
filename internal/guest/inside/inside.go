// Package inside is grange-guest: it runs one job in a VM, as init of the micro image or as a service of a full one. It
// talks to the host over two virtio-serial ports only, and never decides anything: the agent hands it a finished Job.
package inside

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// Guest is the state of the one job of this VM.
type Guest struct {
	control *port
	session *guest.Session
	reaper  *reaper
	init    bool // we are process 1: nobody else mounts, loads modules or reaps

	mu    sync.Mutex
	state guest.State
	jobID string
}

// Run serves the host until the VM ends. It returns an error only where the VM is of no use.
func Run() error {
	logf("up") // measurements of the boot look for this line
	g := &Guest{init: os.Getpid() == 1, session: guest.NewSession(), state: guest.State{Phase: guest.Ready, Boot: uptime()}}
	if g.init {
		if err := bringUp(); err != nil {
			return err
		}
	}
	g.reaper = newReaper()
	control, err := openPort(guest.ControlPort)
	if err != nil {
		return err
	}
	g.control = control
	// The host answers while we go on. The first use of encoding/json takes an emulated guest 10 ms: this line is written without.
	fmt.Fprintf(control, "\n{\"phase\":%q,\"boot\":%d}\n", guest.Ready, g.state.Boot)
	job, err := openPort(guest.JobPort)
	if err != nil {
		return err
	}
	go func() { logf("job port: %v", g.session.AttachGuest(job)) }()
	return guest.Lines(control, guest.MaxJobLine, g.handle)
}

func (g *Guest) handle(m guest.ControlMessage) {
	if m.Hello {
		g.tell()
	}
	if m.Job == nil {
		return
	}
	g.mu.Lock()
	known := g.jobID != ""
	if !known {
		g.jobID = m.Job.ID
		g.state.Phase = guest.Given
	}
	g.mu.Unlock()
	if !known {
		go g.run(m.Job)
	}
}

// run sees the job from its start to the host's taking of its exit.
func (g *Guest) run(j *guest.Job) {
	exit, err := g.runJob(j)
	messages := g.session.Stream(guest.StreamMessages)
	if err != nil {
		g.session.Stream(guest.StreamStdout).CloseWrite()
		g.session.Stream(guest.StreamStderr).CloseWrite()
		guest.WriteLine(messages, guest.GuestMessage{Failed: err.Error()})
		g.set(guest.State{Phase: guest.Failed, Message: err.Error()})
		return
	}
	guest.WriteLine(messages, guest.GuestMessage{Exit: exit})
	g.set(guest.State{Phase: guest.Exited, Exit: exit})
}

func (g *Guest) set(s guest.State) {
	g.mu.Lock()
	s.Boot = g.state.Boot
	g.state = s
	g.mu.Unlock()
	g.tell()
}

// tell sends the whole state. Nobody may be listening: whoever comes later says hello.
func (g *Guest) tell() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := guest.WriteLine(g.control, g.state); err != nil {
		logf("control port: %v", err)
	}
}

// uptime is the time since the kernel started.
func uptime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// logf writes to the console, which the host shows when something goes wrong.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "grange-guest: "+format+"\n", args...)
}
