package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// task is one job in this VM, from its handing over to the host's word that it wants nothing more of it.
type task struct {
	guest   *Guest
	job     *guest.Job
	session *guest.Session
	over    chan struct{}  // closed when start has returned
	served  sync.WaitGroup // of the port

	mu    sync.Mutex
	port  io.Closer
	procs *processes
	binds []*bind
	pid   int  // of the command, while it runs
	ended bool // the host wants nothing more
	steps *stepServer
	state guest.State
}

func newTask(g *Guest, j *guest.Job) *task {
	return &task{guest: g, job: j, session: guest.NewSession(j.ID), over: make(chan struct{}),
		state: guest.State{Job: j.ID, Phase: guest.Given}}
}

// start serves the job's port and runs the job.
func (t *task) start() {
	defer close(t.over)
	p, err := t.guest.takePort(t.job.Port)
	if err != nil {
		t.set(guest.State{Phase: guest.Failed, Message: err.Error()})
		return
	}
	t.mu.Lock()
	t.port = p
	t.mu.Unlock()
	session, number := t.session, t.job.Port
	t.served.Go(func() { logf("job port %d: %v", number, session.AttachGuest(heldPort{p, &t.guest.hold})) })
	t.guest.setup.Do(func() { t.guest.setupFailed = t.prepareVM() })
	exit, err := (*guest.Exit)(nil), t.guest.setupFailed
	if err == nil {
		err = t.guest.mountPorts(t.job.Binds)
	}
	run := func() error { exit, err = t.runJob(); return err }
	switch {
	case err != nil:
	case t.job.Shared:
		err = onOwnMounts(run)
	default:
		err = run()
	}
	if err != nil {
		t.fail(err)
		return
	}
	if t.job.Shared {
		t.guest.doubtOthers(t) // before anybody can know that it has ended
	}
	guest.WriteLine(session.Stream(guest.StreamMessages), guest.GuestMessage{Exit: exit})
	t.set(guest.State{Phase: guest.Exited, Exit: exit})
}

// doubtOthers has the other jobs see what the one that has ended did to directories that they share.
func (g *Guest) doubtOthers(ended *task) {
	g.mu.Lock()
	tasks := slices.Collect(maps.Values(g.tasks))
	g.mu.Unlock()
	for _, t := range tasks {
		if t == ended {
			continue
		}
		t.mu.Lock()
		binds := t.binds
		t.mu.Unlock()
		for _, b := range binds {
			b.doubt()
		}
	}
}

func (t *task) fail(err error) {
	t.session.Stream(guest.StreamStdout).CloseWrite()
	t.session.Stream(guest.StreamStderr).CloseWrite()
	guest.WriteLine(t.session.Stream(guest.StreamMessages), guest.GuestMessage{Failed: err.Error()})
	t.set(guest.State{Phase: guest.Failed, Message: err.Error(), NoDir: errors.As(err, new(noDirectory))})
}

// noDirectory is the path of a working directory that the VM does not have.
type noDirectory string

func (d noDirectory) Error() string { return "working directory " + string(d) + " is not in the VM" }

func (t *task) set(s guest.State) {
	s.Job = t.job.ID
	t.mu.Lock()
	t.state = s
	t.mu.Unlock()
	t.guest.tell(s)
}

var errEnded = errors.New("the host wants it no more")

// runJob prepares the VM for the job, runs it, and returns when all its output is in the session. An error means that
// the job was not started.
func (t *task) runJob() (*guest.Exit, error) {
	j := t.job
	if err := t.prepare(); err != nil {
		return nil, err
	}
	for _, path := range j.Prologs {
		if code, err := t.runProlog(path); err != nil || code != 0 {
			t.session.Stream(guest.StreamStdout).CloseWrite()
			t.session.Stream(guest.StreamStderr).CloseWrite()
			return &guest.Exit{Code: code}, err
		}
	}
	path, code := lookPath(j)
	if code != 0 {
		fmt.Fprintf(t.session.Stream(guest.StreamStderr), "grange: %s: %s\n", j.Argv[0], map[int]string{
			exitNotFound: "not found in this image", exitNotExecutable: "not executable"}[code])
		t.session.Stream(guest.StreamStdout).CloseWrite()
		t.session.Stream(guest.StreamStderr).CloseWrite()
		return &guest.Exit{Code: code}, nil
	}
	streams, err := startStreams(t.session, j)
	if err != nil {
		return nil, err
	}
	killed := oomKills()
	end, err := t.launch(path, streams)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	t.set(guest.State{Phase: guest.Running})
	go t.listen(t.session, streams)
	exit := exitOf(<-end)
	exit.OOMKills = oomKills() - killed
	t.killRest()
	streams.drain()
	for _, b := range t.binds {
		b.flush()
	}
	return exit, nil
}

// launch starts the command, unless the host has given the job up meanwhile.
func (t *task) launch(path string, streams *streams) (<-chan ending, error) {
	t.mu.Lock() // finish must see the process, or keep it from starting
	defer t.mu.Unlock()
	if t.ended {
		streams.closeChildEnds()
		return nil, errEnded
	}
	if t.job.Shared || !t.guest.init || t.guest.sshfs.any() {
		t.procs = newProcesses(t.job.ID)
	}
	pid, end, err := t.guest.reaper.start(func() (int, error) { return streams.start(path, t.job, t.procs) })
	t.pid = pid
	return end, err
}

// prepare makes the VM what this job expects.
func (t *task) prepare() error {
	j := t.job
	if err := t.guest.addFiles(j); err != nil {
		return err
	}
	if err := t.guest.services.offer(j.Services, t.guest.init); err != nil {
		return err
	}
	if err := t.openSteps(); err != nil {
		return err
	}
	if err := t.mountBinds(); err != nil {
		return err
	}
	if len(j.Hook) > 0 && !j.Shared {
		if err := t.runHook(); err != nil {
			return err
		}
	}
	if info, err := os.Stat(j.Dir); err != nil || !info.IsDir() {
		return noDirectory(j.Dir)
	}
	return nil
}

// prepareVM does what is done once in a VM, for its first job. Of jobs that share it, the site's script is part of
// that.
func (t *task) prepareVM() error {
	j, g := t.job, t.guest
	<-g.devices
	if g.init {
		unix.Sethostname([]byte(j.Hostname))
		if err := nameHost("/etc/hosts", j.Hostname); err != nil {
			logf("%v", err)
		}
		if err := loopbackUp(); err != nil {
			logf("loopback: %v", err)
		}
	}
	if j.Root != nil {
		if !g.init {
			return errors.New("the root of a full system cannot be replaced")
		}
		<-g.looked // at what will be elsewhere
		if err := enterRoot(*j.Root, j.Scratch); err != nil {
			return fmt.Errorf("root file system: %w", err)
		}
	}
	if !g.init {
		if err := growRoot(); err != nil { // the job has what the image has
			logf("the root disk is not grown: %v", err)
		}
	}
	if j.Network && g.init {
		if err := setUpNetwork(); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	if j.Address != nil {
		if err := setUpAddress(*j.Address); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	if j.Address6 != nil {
		if err := setUpAddress6(*j.Address6); err != nil {
			return fmt.Errorf("network: IPv6: %w", err)
		}
	}
	if j.Scratch != "" && j.Root == nil {
		if err := mountScratch(j.Scratch); err != nil {
			return fmt.Errorf("scratch: %w", err)
		}
	}
	if err := useDisks(j.Disks); err != nil {
		return err
	}
	if len(j.Hook) == 0 || !j.Shared {
		return nil
	}
	if err := g.addFiles(j); err != nil { // the script may ask who the user is
		return err
	}
	return t.runHook()
}

// addFiles makes the job's user and files known.
func (g *Guest) addFiles(j *guest.Job) error {
	g.files.Lock()
	defer g.files.Unlock()
	if err := addUser(j.User); err != nil {
		return err
	}
	for _, f := range j.Files {
		if err := addFile(f, j.User); err != nil {
			return err
		}
	}
	return nil
}

// addFile writes one file. One of the job's own never takes the place of one of the image, only that of an earlier
// task's of the same job.
func addFile(f guest.File, u guest.User) error {
	if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path {
		return fmt.Errorf("file %q: not an absolute path", f.Path)
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return err
	}
	if !f.Own {
		return os.WriteFile(f.Path, f.Content, 0o644)
	}
	if info, err := os.Lstat(f.Path); err == nil {
		if s, ok := info.Sys().(*syscall.Stat_t); !ok || s.Uid != u.UID || info.Mode() != 0o700 {
			return nil // the image's
		}
		if text, err := os.ReadFile(f.Path); err == nil && bytes.Equal(text, f.Content) {
			return nil // of an earlier task of the same job, which may run it still
		}
		if err := os.Remove(f.Path); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o700)
	if err != nil {
		return err
	}
	_, err = file.Write(f.Content)
	return errors.Join(err, file.Chown(int(u.UID), int(u.GID)), file.Chmod(0o700), file.Close())
}

// runHook runs the site's script as root, with the job's environment. Its output goes to the job's stderr; its failure
// keeps the job from starting.
func (t *task) runHook() error {
	const path = "/var/lib/grange/hook" // not below /run, from where Debian's full systems let nothing be run
	j := t.job
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, j.Hook, 0o700); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	_, end, err := t.guest.reaper.start(func() (int, error) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return 0, err
		}
		defer null.Close()
		return syscall.ForkExec(path, []string{path},
			&syscall.ProcAttr{Dir: "/", Env: j.Env, Files: []uintptr{null.Fd(), w.Fd(), w.Fd()}})
	})
	w.Close()
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("site hook: the image has not the program that its first line names")
	}
	if err != nil {
		return fmt.Errorf("site hook: %w", err)
	}
	io.Copy(t.session.Stream(guest.StreamStderr), r)
	if exit := exitOf(<-end); exit.Code != 0 {
		return fmt.Errorf("site hook ended with status %d", exit.Code)
	}
	return nil
}

// listen carries out what the host asks of a running job.
func (t *task) listen(session *guest.Session, streams *streams) {
	guest.Lines(session.Stream(guest.StreamMessages), guest.MaxGuestLine, func(m guest.HostMessage) {
		switch {
		case m.Signal > 0:
			t.signal(unix.Signal(m.Signal))
		case m.Resize != nil:
			streams.resize(*m.Resize)
		case len(m.Publish) > 0:
			go publish(session, m.Publish)
		case m.Broken != 0:
			streams.breakOutput(m.Broken)
		}
	})
}

// signal reaches the command's process group while the command runs: later its number may be another one's.
func (t *task) signal(s unix.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pid > 0 {
		unix.Kill(-t.pid, s)
	}
}

// killRest ends what the job left behind: when its command has ended, all of it ends.
func (t *task) killRest() {
	t.mu.Lock()
	pid, procs := t.pid, t.procs
	t.pid = 0
	t.mu.Unlock()
	switch {
	case procs != nil:
		procs.kill(pid)
	case !t.guest.ending(): // else the others have been asked to end, and have their time
		unix.Kill(-1, unix.SIGKILL)
	}
}

// finish ends what is left of the job, and frees its port: its host has all it wants, or has gone.
func (t *task) finish() {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.ended = true
	pid, procs, binds := t.pid, t.procs, t.binds
	t.mu.Unlock()
	t.session.Close()
	for _, b := range binds {
		b.abort() // nobody answers any more, and who waits for an answer cannot be killed
	}
	if procs != nil {
		procs.kill(pid)
	}
	<-t.over
	t.mu.Lock()
	if t.steps != nil {
		t.steps.close()
	}
	port := t.port
	t.session, t.binds, t.job = nil, nil, &guest.Job{ID: t.job.ID, Port: t.job.Port} // a VM may see thousands
	t.mu.Unlock()
	if port != nil {
		port.Close()
	}
	t.served.Wait()
	t.set(guest.State{Phase: guest.Gone})
}
