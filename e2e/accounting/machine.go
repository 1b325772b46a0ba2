package main

import (
	"encoding/json"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// A machine is a process of its own: it is QEMU and guest in one, burns the CPU time that its job asks for, and speaks
// as grange-guest does. It lives on when its agent is killed.

// spec is what a machine is started from, and what List finds.
type spec struct {
	ID, Name, Control string
	Metadata          []byte
	Nodes             []int
	VCPUs             []string
	Emulator          string
}

const (
	pidsDir  = "pids"
	runState = "running"
)

func file(dir, id, what string) string { return filepath.Join(dir, id+"."+what) }

// spawn starts a machine as nobody's child, so that the process above all of the test's inherits it.
func spawn(dir, id string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = os.StartProcess(self, []string{self, "machine", dir, id},
		&os.ProcAttr{Files: []*os.File{null, null, null}, Sys: &syscall.SysProcAttr{Setsid: true},
			// few threads: to take a process apart takes the kernel CPU time that no counter of a thread has any more
			Env: append(os.Environ(), "GOMAXPROCS=1", "GOGC=off")})
	return err
}

// machine is the process.
type machine struct {
	dir, id string

	mu     sync.Mutex
	conn   net.Conn
	states map[string]guest.State
}

func runMachine(dir, id string) error {
	var s spec
	text, err := os.ReadFile(file(dir, id, "json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	pid := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(filepath.Join(dir, pidsDir, pid), []byte(id), 0o600); err != nil {
		return err
	}
	l, err := net.Listen("unix", s.Control)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file(dir, id, "pid"), []byte(pid), 0o600); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() {
		<-ended
		noteClock(dir, id, os.Getpid())
		os.Exit(0)
	}()
	for {
		if text, _ := os.ReadFile(file(dir, id, "state")); string(text) == runState {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	m := &machine{dir: dir, id: id, states: map[string]guest.State{}}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.conn = conn
		m.mu.Unlock()
		guest.WriteLine(conn, guest.State{Phase: guest.Ready, Pings: true})
		guest.Lines(conn, guest.MaxJobLine, m.handle)
	}
}

func (m *machine) tell(s guest.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[s.Job] = s
	guest.WriteLine(m.conn, s)
}

func (m *machine) handle(c guest.ControlMessage) {
	switch {
	case c.Hello:
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range m.states {
			guest.WriteLine(m.conn, s)
		}
		guest.WriteLine(m.conn, guest.State{Phase: guest.Ready, Pings: true})
	case c.Ping != 0:
		m.mu.Lock()
		defer m.mu.Unlock()
		guest.WriteLine(m.conn, guest.State{Pong: c.Ping})
	case c.Job != nil:
		m.mu.Lock()
		_, known := m.states[c.Job.ID]
		m.mu.Unlock()
		if !known {
			os.WriteFile(file(m.dir, m.id, "job"), nil, 0o600)
			m.tell(guest.State{Job: c.Job.ID, Phase: guest.Running})
			go m.work(c.Job)
		}
	case c.End != "":
		m.tell(guest.State{Job: c.End, Phase: guest.Gone})
	case c.PowerOff:
		noteClock(m.dir, m.id, os.Getpid())
		os.Exit(0)
	}
}

// work burns what the job asks for: burn MILLISECONDS STATUS. A cloud VM's job burns a little for ever.
func (m *machine) work(j *guest.Job) {
	if len(j.Argv) != 3 || j.Argv[0] != "burn" {
		for {
			burn(5 * time.Millisecond)
			time.Sleep(50 * time.Millisecond)
		}
	}
	amount, _ := strconv.Atoi(j.Argv[1])
	status, _ := strconv.Atoi(j.Argv[2])
	before := ownCPU()
	burn(time.Duration(amount) * time.Millisecond)
	m.tell(guest.State{Job: j.ID, Phase: guest.Exited, Exit: &guest.Exit{Code: status, User: ownCPU() - before,
		MaxRSS: 4096}})
}

// noteClock writes what the kernel says that a machine has used, for whoever judges: whoever is about to end it does.
// What the kernel takes to take a dead process apart is not the machine's.
func noteClock(dir, id string, pid int) {
	const scheduled = 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|scheduled), &t) == nil {
		os.WriteFile(file(dir, id, "clock"), []byte(strconv.FormatInt(t.Nano(), 10)), 0o600)
	}
}

func ownCPU() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

func burn(d time.Duration) {
	for until := ownCPU() + d; ownCPU() < until; {
		for range 20000 { // between two looks at the clock
		}
	}
}

// pidOf is the process of a machine; 0: there is none yet.
func pidOf(dir, id string) int {
	text, err := os.ReadFile(file(dir, id, "pid"))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}
