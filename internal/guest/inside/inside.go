// Package inside is grange-guest: it runs jobs in a VM, as init of the micro image or as a service of a full one. It
// talks to the host over virtio-serial ports only, and never decides anything: the agent hands it finished Jobs.
package inside

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
)

// Guest is the state of this VM: the jobs it was ever given.
type Guest struct {
	control *port
	reaper  *reaper
	init    bool // we are process 1: nobody else mounts, loads modules or reaps

	setup       sync.Once // what is done once in a VM, when its first job comes
	setupFailed error
	files       sync.Mutex // held while users and files are added

	mu    sync.Mutex
	boot  time.Duration
	tasks map[string]*task // by job ID; a job that was given once is never started again
	port0 *port            // the first job port, until a job takes it
	off   bool             // the VM is ending: what ends with it is no news
	view  *farm.GuestView  // nil until it was read

	services services // of the host
	hold     hold
	sshfs    sshfsMounts

	looked  chan struct{} // closed when view was read
	devices chan struct{} // closed when openDevices has returned
}

// Run serves the host until the VM ends. It returns an error only where the VM is of no use.
func Run() error {
	logf("up") // measurements of the boot look for this line
	g := &Guest{init: os.Getpid() == 1, boot: uptime(), tasks: map[string]*task{},
		looked: make(chan struct{}), devices: make(chan struct{})}
	if g.init {
		if err := bringUp(); err != nil {
			return err
		}
	}
	openLimits()
	g.reaper = newReaper()
	if g.init {
		go g.obeySignals()
	}
	control, err := openPort(guest.ControlPort)
	if err != nil {
		return err
	}
	g.control = control
	if !g.init {
		go g.leave()
	}
	// The host answers while we go on. The first use of encoding/json takes an emulated guest 10 ms: this line is
	// written without.
	fmt.Fprintf(control, "\n{\"phase\":%q,\"boot\":%d,\"pings\":true,\"disks\":true,\"shares\":true,"+
		"\"sftp\":true,\"services\":true,\"ipv6\":true,\"clocks\":true,\"holds\":true,\"roots\":%t}\n",
		guest.Ready, g.boot, g.init)
	go func() {
		defer close(g.devices)
		if g.init { // else udev does it
			openDevices("/dev")
		}
	}()
	if g.port0, err = openPort(guest.JobPort(0)); err != nil {
		return err
	}
	go g.look(os.DirFS("/"))
	return guest.Lines(control, guest.MaxJobLine, g.handle)
}

func (g *Guest) handle(m guest.ControlMessage) {
	if m.Hello {
		g.tellAll()
	}
	if m.Ping != 0 {
		g.tell(guest.State{Pong: m.Ping, Load: readLoad(os.DirFS("/"))})
	}
	if m.Hold {
		g.hold.begin()
	}
	if m.Release {
		g.hold.end()
	}
	if m.Clock != nil {
		g.tell(guest.State{Clock: answerClock(*m.Clock)})
	}
	if m.PowerOff {
		go g.powerOff(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.Job != nil && g.tasks[m.Job.ID] == nil {
		m.Job.Decode()
		t := newTask(g, m.Job)
		g.tasks[m.Job.ID] = t
		go t.start()
	}
	if t := g.tasks[m.End]; m.End != "" && t != nil {
		go t.finish()
	}
}

// takePort opens a job port. Another job may have had it before, and has closed it.
func (g *Guest) takePort(number int) (*port, error) {
	g.mu.Lock()
	p := g.port0
	if number == 0 {
		g.port0 = nil
	}
	g.mu.Unlock()
	if number == 0 && p != nil {
		return p, nil
	}
	return openPort(guest.JobPort(number))
}

// tell sends a state. Nobody may be listening: whoever comes later says hello.
func (g *Guest) tell(s guest.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.write(s)
}

func (g *Guest) write(s guest.State) {
	if g.off {
		return
	}
	if err := guest.WriteLine(g.control, s); err != nil {
		logf("control port: %v", err)
	}
}

// tellAll reports every job, and then that these are all.
func (g *Guest) tellAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.tasks {
		t.mu.Lock()
		s := t.state
		t.mu.Unlock()
		g.write(s)
	}
	if g.view != nil {
		g.write(guest.State{View: g.view})
	}
	g.write(guest.State{Phase: guest.Ready, Boot: g.boot, Pings: true, Roots: g.init, Disks: true,
		Shares: true, SFTP: true, Services: true, IPv6: true, Clocks: true, Holds: true})
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
