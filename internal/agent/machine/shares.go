package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/confine"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/procstat"
)

// Share is a directory that a machine has by virtiofs or sftp, and the process that serves it. It outlives the agent,
// and ends with its machine.
type Share struct {
	Tag     string
	Program string `json:",omitempty"` // its name; "": an earlier agent has started virtiofsd
	PID     int
	Started uint64 // when it started, in clock ticks since boot
}

// sharesFile keeps the processes that serve a machine's directories, for the next agent.
const sharesFile = "shares.json"

// ServeCommand starts the agent's own program as the process that serves a directory.
var ServeCommand = []string{"/proc/self/exe", "serve-directory"}

// filesOfShare is how many files a guest may have the host keep open for one directory: virtiofsd keeps each that the
// guest's kernel knows.
const filesOfShare = 1 << 20

// ShareFor is who a directory is served for.
type ShareFor struct {
	UID, GID uint32
	Groups   []uint32
	Cgroups  []string    // of the batch job, as Adopt takes them
	CPUs     farm.CPUSet // that it may run on, as QEMU's own threads; empty: as we may
}

// By is what serves a directory.
type By struct {
	Gateway  farm.Gateway
	Program  string // an absolute path
	ReadOnly bool
}

// Serve has a directory served for the machine, which must have its directory and its user and must not run yet. Errors
// are those of confine.Start, and CodeNotAdopted.
func (m *Machine) Serve(ctx context.Context, by By, d confine.Directory, w ShareFor) (hyper.Share, error) {
	s := Share{Tag: fmt.Sprintf("bind%d", len(m.shares)), Program: filepath.Base(by.Program)}
	path := m.Path(s.Tag)
	listener, err := m.listenForQEMU(path)
	if err != nil {
		return hyper.Share{}, err
	}
	defer listener.Close()
	words, err := os.OpenFile(m.wordsOf(s), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return hyper.Share{}, err
	}
	defer words.Close()
	_, err = confine.Start(ctx, confine.Server{Gateway: by.Gateway, Program: by.Program, Command: ServeCommand,
		Directory: d.File, ReadOnly: by.ReadOnly, Listener: listener, Words: words, UID: w.UID, GID: w.GID,
		Groups: w.Groups, Files: filesOfShare,
		Place: func(pid int) (err error) {
			s.PID = pid
			if s.Started, err = procstat.Started(pid); err != nil {
				return err
			}
			// Before it does anything: without us it ends, or the next agent knows it.
			if err := m.keepShares(append(m.shares, s)); err != nil {
				return err
			}
			return errors.Join(join("/", w.Cgroups, pid, s.Started), w.pin(pid))
		}})
	if err != nil {
		return hyper.Share{}, errors.Join(err, m.withdraw(s))
	}
	return hyper.Share{Tag: s.Tag, Path: path}, nil
}

// withdraw forgets a share that came to nothing: the next one takes its names, and nobody waits for its process.
func (m *Machine) withdraw(s Share) error {
	rest := slices.DeleteFunc(slices.Clone(m.shares), func(o Share) bool { return o.Tag == s.Tag })
	return errors.Join(os.Remove(m.Path(s.Tag)), os.Remove(m.wordsOf(s)), m.keepShares(rest))
}

// pin keeps a process from the CPUs of other VMs.
func (w ShareFor) pin(pid int) error {
	if w.CPUs.Empty() {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range w.CPUs.List() {
		set.Set(cpu)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // any of them may start the server
	for _, t := range threads {
		if id, number := strconv.Atoi(t.Name()); number == nil {
			err = errors.Join(err, unix.SchedSetaffinity(id, &set))
		}
	}
	if err != nil {
		return fmt.Errorf("have the server of a directory run on the CPUs %v: %w", w.CPUs, err)
	}
	return nil
}

func (m *Machine) wordsOf(s Share) string { return m.Path(s.Tag + ".ended") }

// listenForQEMU makes a socket that the machine's QEMU alone can connect to.
func (m *Machine) listenForQEMU(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(path, 0o600), os.Lchown(path, m.User.UID, m.User.GID)); err != nil {
		return nil, err
	}
	return l.File()
}

// keepShares writes them for the next agent.
func (m *Machine) keepShares(all []Share) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	m.shares = all
	return atomicfile.Write(m.Path(sharesFile), text, 0o600)
}

// ReadShares reads what an earlier agent has kept of the machine.
func (m *Machine) ReadShares() (err error) {
	m.shares, err = readShares(m.Sockets)
	return err
}

func readShares(dir string) ([]Share, error) {
	text, err := os.ReadFile(filepath.Join(dir, sharesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Share
	return all, json.Unmarshal(text, &all)
}

// AdoptShares puts what serves the machine's directories into control groups, as Adopt does with its QEMU.
func (m *Machine) AdoptShares(groups []string) error {
	for _, s := range m.shares {
		if started, err := procstat.Started(s.PID); err != nil || started != s.Started {
			continue // it has ended, which is noticed elsewhere
		}
		for _, pid := range withChildren(s.PID) {
			started, err := procstat.Started(pid)
			if err != nil {
				continue
			}
			if err := Adopt("/", groups, pid, started); err != nil {
				return err
			}
		}
	}
	return nil
}

// withChildren are a process and all that came from it.
func withChildren(pid int) []int {
	all := []int{pid}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, word := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(word); err == nil {
			all = append(all, withChildren(child)...)
		}
	}
	return all
}

// open returns a descriptor of the very process, or os.ErrProcessDone.
func (s Share) open() (*os.File, error) {
	fd, err := unix.PidfdOpen(s.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, os.ErrProcessDone
	}
	f := os.NewFile(uintptr(fd), "process")
	if started, err := procstat.Started(s.PID); err != nil || started != s.Started {
		f.Close()
		return nil, os.ErrProcessDone
	}
	return f, nil
}

// await waits for the end of the process, or of f. It sleeps in the kernel.
func await(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	ended := false
	if err := raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ended = err == nil && n > 0
		return ended
	}); err != nil && !ended {
		return err
	}
	return nil
}

// watchShare calls gone when the process ends, unless ctx does.
func (m *Machine) watchShare(ctx context.Context, s Share, gone func(error)) {
	f, err := s.open()
	if err == nil {
		defer f.Close()
		stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Now()) })
		defer stop()
		err = await(f)
		if ctx.Err() != nil || err != nil {
			return
		}
	}
	if lost := m.shareLost(s); m.runsOn(ctx) {
		gone(lost)
	}
}

// runsOn reports whether the machine goes on: a server ends with its QEMU, and the machine's end is noticed elsewhere.
func (m *Machine) runsOn(ctx context.Context) bool {
	for range 20 {
		started, err := procstat.Started(m.Applied.PID)
		if err != nil || started != m.Applied.Started || ctx.Err() != nil {
			return false
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ctx.Err() == nil
}

// shareLost is the error of a machine whose directory nobody serves any more.
func (m *Machine) shareLost(s Share) error {
	how := "its process is not there any more"
	for range 20 { // the words may come a moment later
		if text, _ := os.ReadFile(m.wordsOf(s)); len(text) > 0 {
			how = farm.Clean(string(text), MaxReason)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeBindLost,
		Message: s.name() + ", which serves a bound directory (" + s.Tag + "), has ended: " + how,
		Hint: "calls of the job to its files would never return, so its VM was ended; the job may have run in part " +
			"and is not run again"}
}

func (s Share) name() string { return cmp.Or(s.Program, "virtiofsd") }

// CodeBindLost is of a VM that was ended because nobody served one of its directories any more.
const CodeBindLost farm.Code = "bind-lost"

// endLimit is for the kernel to end a process that was killed.
const endLimit = 10 * time.Second

// EndShares ends what serves the directories of the machine whose sockets are in dir. A machine that runs must not lose
// them.
func EndShares(dir string) error {
	all, err := readShares(dir)
	var ending []*os.File
	for _, s := range all {
		f, opened := s.open()
		if opened != nil {
			continue // it has ended
		}
		defer f.Close()
		ending = append(ending, f)
		err = errors.Join(err, kill(f, s.PID))
	}
	limit := time.Now().Add(endLimit)
	for _, f := range ending {
		f.SetReadDeadline(limit)
		if waited := await(f); waited != nil {
			err = errors.Join(err, fmt.Errorf("the server of a directory does not end: %w", waited))
		}
	}
	return err
}

func kill(f *os.File, pid int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if err != nil && err != unix.ESRCH {
		return fmt.Errorf("end the server of a directory (process %d): %w", pid, err)
	}
	return nil
}
