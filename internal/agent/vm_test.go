package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/cloud"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/hyper/fake"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/waittest"
)

// fakeHyper is a hypervisor in memory whose VMs have a guest that does as it is told.
type fakeHyper struct{ hyper.Hypervisor }

func (fakeHyper) QEMUOwner(context.Context) (int, int, error) { return os.Getuid(), os.Getgid(), nil }

// OwnGroup needs root: disks are given away.
func (fakeHyper) OwnGroup(_ context.Context, uid, _ uint32) (uint32, string, error) {
	if os.Getuid() != 0 {
		return 0, "this test is not root", nil
	}
	return uid, "", nil
}

// fakeGuests are the guests of all VMs of a host: each says that it is ready, runs what it is given, and ends what it
// is told to end.
type fakeGuests struct {
	host      *fake.Host
	deaf      bool            // to orders to power off
	silent    bool            // they run, and answer no ping
	old       bool            // they know no pings
	view      *farm.GuestView // what they report of their machine; nil: they do not
	mu        sync.Mutex
	listeners map[string]net.Listener           // by VM
	jobs      map[string][]string               // by VM: IDs that were started, in order
	ended     map[string]bool                   // by job: the agent wanted its end
	ports     map[string]int                    // by job
	states    map[string]map[string]guest.State // by VM and job
}

// listen is called before a machine is made: an agent connects to it at once.
func (g *fakeGuests) listen(m hyper.Machine) error {
	l, err := net.Listen("unix", m.Ports[0].Path)
	if err != nil {
		return err
	}
	for _, p := range m.Ports[1:] {
		if err := os.WriteFile(p.Path, nil, 0o600); err != nil {
			return err
		}
	}
	g.mu.Lock()
	g.listeners[m.ID] = l
	g.states[m.ID] = map[string]guest.State{}
	g.mu.Unlock()
	return nil
}

func (g *fakeGuests) run(ctx context.Context, m hyper.Machine) {
	g.mu.Lock()
	l := g.listeners[m.ID]
	g.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		closing := context.AfterFunc(ctx, func() { conn.Close() })
		guest.WriteLine(conn, guest.State{Phase: guest.Ready, Pings: !g.old, Roots: !g.old, IPv6: !g.old})
		g.look(conn)
		// One connection at a time, as QEMU's: what the last agent sent is met before what the next one does.
		guest.Lines(conn, guest.MaxJobLine, func(c guest.ControlMessage) { g.handle(m.ID, conn, c) })
		closing()
	}
}

func (g *fakeGuests) look(conn net.Conn) {
	if g.view != nil {
		guest.WriteLine(conn, guest.State{View: g.view})
	}
}

func (g *fakeGuests) handle(vm string, conn net.Conn, c guest.ControlMessage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	tell := func(s guest.State) { g.states[vm][s.Job] = s; guest.WriteLine(conn, s) }
	switch {
	case c.Hello:
		for _, s := range g.states[vm] {
			guest.WriteLine(conn, s)
		}
		guest.WriteLine(conn, guest.State{Phase: guest.Ready, Pings: !g.old})
	case c.Ping != 0 && !g.silent && !g.old:
		guest.WriteLine(conn, guest.State{Pong: c.Ping})
	case c.Job != nil:
		if _, known := g.states[vm][c.Job.ID]; known {
			return
		}
		g.jobs[vm] = append(g.jobs[vm], c.Job.ID)
		g.ports[c.Job.ID] = c.Job.Port
		tell(guest.State{Job: c.Job.ID, Phase: guest.Running})
	case c.PowerOff && g.deaf:
	case c.PowerOff:
		go g.host.PowerOff(vm)
	case c.End != "":
		g.ended[c.End] = true
		tell(guest.State{Job: c.End, Phase: guest.Gone})
	}
}

// farmhouse is an agent on a fake host.
type farmhouse struct {
	*testing.T
	host   *fake.Host
	guests *fakeGuests
	dir    string
	agent  *Agent
	stop   context.CancelCauseFunc
	wrap   func(hyper.Hypervisor) hyper.Hypervisor // nil: the fake as it is
	ready  func()                                  // of agents that serve
	peers  cloud.Peers                             // nil: it has not joined
	names  *names.Service                          // nil: the host's
}

func (f *farmhouse) hypervisor() hyper.Hypervisor {
	if f.wrap != nil {
		return f.wrap(f.host.Open())
	}
	return f.host.Open()
}

func newFarmhouse(t *testing.T) *farmhouse {
	t.Helper()
	dir, err := os.MkdirTemp("", "fh") // short: sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	f := &farmhouse{T: t, host: fake.NewHost(), dir: dir,
		guests: &fakeGuests{listeners: map[string]net.Listener{}, jobs: map[string][]string{}, ended: map[string]bool{},
			ports: map[string]int{}, states: map[string]map[string]guest.State{}}}
	f.guests.host, f.host.Refuse, f.host.Guest = f.host, f.guests.listen, f.guests.run
	image := filepath.Join(dir, "image")
	if err := os.MkdirAll(image, 0o755); err != nil {
		t.Fatal(err)
	}
	kernel := make([]byte, 4096)
	copy(kernel[0x1fe:], "\x55\xaa\xeb\x66HdrS\x0f\x02")
	for name, text := range map[string][]byte{"vmlinuz": kernel, "initrd": []byte("x"), "cmdline": []byte("quiet")} {
		if err := os.WriteFile(filepath.Join(image, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.open()
	if _, err := f.agent.images.Import(t.Context(), "micro", image, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.close()
		f.host.Close()
		os.RemoveAll(dir)
	})
	return f
}

// open makes an agent, as at a start, without its socket.
func (f *farmhouse) open() {
	f.Helper()
	c, err := config.ParseAgent(fmt.Appendf(nil,
		"slurm_nodes = []\nstate_dir = %q\nrun_dir = %q\ndefault_image = \"micro\"\nstop_timeout = \"300ms\"\nmove = "+
			"{ listen = \":0\" }\n[default_shape]\ncpus = 1\nmemory = \"128M\"\n", filepath.Join(f.dir, "s"),
		filepath.Join(f.dir, "r")), "test")
	if err != nil {
		f.Fatal(err)
	}
	a, err := New(Options{Config: c, Hypervisor: fakeHyper{f.hypervisor()}, Log: slog.New(slog.DiscardHandler),
		Version: "test", Peers: f.peers, Names: f.names})
	if err != nil {
		f.Fatal(err)
	}
	a.machines.UID, a.machines.GID = os.Getuid(), os.Getgid()
	a.ctx, f.stop = context.WithCancelCause(context.Background())
	f.agent = a
	if err := a.recovery.recover(f.Context()); err != nil {
		f.Fatal(err)
	}
	a.jobs.Go(func() { a.machines.CheckUsers(a.ctx) })
	a.watch.followEvents()
	a.Cloud.Begin()
}

// close stops the agent as a restart does: VMs go on.
func (f *farmhouse) close() {
	f.stop(errShutdown)
	f.agent.jobs.Wait()
	f.agent.machines.Areas.Jobs.Close()
	f.agent.images.Close()
}

// task is one caller of the agent.
type task struct {
	f      *farmhouse
	id     string
	job    *job
	events chan api.JobEvent
	hangUp context.CancelFunc
}

func (f *farmhouse) caller(batchJob string) Caller {
	f.Helper()
	c, err := Caller{PID: os.Getpid(), UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}.withLimits()
	if err != nil {
		f.Fatal(err)
	}
	c.Batch = farm.Allotment{}
	if batchJob != "" {
		c.Batch = farm.Allotment{System: farm.Slurm, Job: batchJob}
	}
	return c
}

// ask asks for a job and follows it.
func (f *farmhouse) ask(c Caller, r api.JobRequest) (*task, error) {
	r.Argv, r.Dir = []string{"x"}, "/"
	if r.ID == "" {
		r.ID = api.NewID()
	}
	j, fresh, err := f.agent.admit(&r, c)
	if err != nil {
		return nil, err
	}
	if fresh {
		f.agent.jobs.Go(j.run)
	} else if err := j.join(&r, c); err != nil {
		return nil, err
	}
	ctx, hangUp := context.WithCancel(context.Background())
	t := &task{f, r.ID, j, make(chan api.JobEvent, 100), hangUp}
	f.Cleanup(hangUp)
	go func() {
		defer close(t.events)
		defer j.callerLeft()
		j.follow(ctx, func(e api.JobEvent) error { t.events <- e; return nil })
	}()
	return t, nil
}

func (f *farmhouse) mustAsk(c Caller, r api.JobRequest) *task {
	f.Helper()
	t, err := f.ask(c, r)
	if err != nil {
		f.Fatal(err)
	}
	return t
}

// until waits for an event, and returns the newest VM that the caller was told of.
func (t *task) until(event string) *api.VM {
	t.f.Helper()
	var vm *api.VM
	for limit := time.After(waittest.Limit); ; {
		select {
		case e, ok := <-t.events:
			if !ok {
				t.f.Fatalf("no event %s before the end", event)
			}
			if e.VM != nil {
				vm = e.VM
			}
			if e.Event == event {
				return vm
			}
			if e.Problem != nil {
				t.f.Fatalf("%s instead of %s: %v", e.Event, event, e.Problem)
			}
		case <-limit:
			t.f.Fatalf("no event %s", event)
		}
	}
}

// done gives the task's place back, and waits until that is done.
func (t *task) done() {
	t.job.cancel(errGivenBack)
	<-t.job.over
}

func (f *farmhouse) machines() int {
	found, err := f.agent.hyper.List(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return len(found)
}

func TestTasksEnterOneVM(t *testing.T) {
	f := newFarmhouse(t)
	first, second := f.mustAsk(f.caller("7"), api.JobRequest{}), f.mustAsk(f.caller("7"), api.JobRequest{})
	a, b := first.until(api.EventRunning), second.until(api.EventRunning)
	if a.ID != b.ID || a.JobPort == b.JobPort || a.Batch != "slurm/7" || f.machines() != 1 {
		t.Fatalf("%+v and %+v are not one VM with two ports", a, b)
	}
	stranger := f.caller("7")
	stranger.UID++
	for who, c := range map[string]Caller{"another job": f.caller("8"), "no job": f.caller(""),
		"another user": stranger} {
		x := f.mustAsk(c, api.JobRequest{})
		if x.until(api.EventRunning).ID == a.ID || f.machines() != 2 {
			t.Errorf("%s is in the VM of job 7", who)
		}
		x.done() // this host may have two CPUs only
	}

	// The first one's connection ends: its command ends, the others stay, and its port is free for the next.
	first.hangUp()
	<-first.job.over
	if !f.guests.ended[first.id] || f.guests.ended[second.id] || f.machines() != 1 {
		t.Errorf("ended: %v", f.guests.ended)
	}
	if third := f.mustAsk(f.caller("7"), api.JobRequest{}); third.until(api.EventRunning).JobPort != a.JobPort {
		t.Error("a free port is not used again")
	} else {
		third.done()
	}
	second.done()
	if f.agent.vmOf(f.caller("7")) != nil || f.machines() != 0 {
		t.Error("the VM outlives its last task")
	}
}

// TestPlacesRunOut: the task behind the last place is told, and runs when one ends.
func TestPlacesRunOut(t *testing.T) {
	f := newFarmhouse(t)
	var tasks []*task
	for range portsFor("slurm/7", 1) {
		x := f.mustAsk(f.caller("7"), api.JobRequest{})
		x.until(api.EventRunning)
		tasks = append(tasks, x)
	}
	if x := f.mustAsk(f.caller("7"), api.JobRequest{NoWait: true}); true {
		for e := range x.events {
			if e.Event == api.EventRunning {
				t.Error("it has no place, and runs")
			}
		}
	}
	last := f.mustAsk(f.caller("7"), api.JobRequest{})
	last.until(api.EventWaiting)
	tasks[1].done()
	last.until(api.EventRunning)
	if f.guests.ports[last.id] != f.guests.ports[tasks[1].id] {
		t.Error("it got another place than the free one")
	}
}

// TestTasksAfterARestart: the next agent finds each task again, gives none of their ports away, and starts nothing
// twice.
func TestTasksAfterARestart(t *testing.T) {
	f := newFarmhouse(t)
	first, second := f.mustAsk(f.caller("7"), api.JobRequest{}), f.mustAsk(f.caller("7"), api.JobRequest{})
	vm := first.until(api.EventRunning)
	second.until(api.EventRunning)
	first.done()
	third := f.mustAsk(f.caller("7"), api.JobRequest{})
	third.until(api.EventRunning)
	f.close()
	f.open()
	fourth := f.mustAsk(f.caller("7"), api.JobRequest{})
	fourth.until(api.EventRunning)
	for _, x := range []*task{second, third} {
		again := f.mustAsk(f.caller("7"), api.JobRequest{ID: x.id, Started: true})
		if again.until(api.EventRunning).ID != vm.ID {
			t.Error("a task came back to another VM")
		}
		*x = *again
	}
	if got := f.guests.jobs[vm.ID]; len(got) != 4 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 4 {
		t.Errorf("started: %v", got)
	}
	ports := map[int]bool{f.guests.ports[second.id]: true, f.guests.ports[third.id]: true,
		f.guests.ports[fourth.id]: true}
	if len(ports) != 3 {
		t.Errorf("two tasks have one port: %v", f.guests.ports)
	}
	if _, err := f.ask(f.caller("7"), api.JobRequest{ID: first.id, Started: true}); !farm.IsCode(err, CodeVMLost) {
		t.Errorf("a task that had ended: %v", err)
	}
	for _, x := range []*task{second, third, fourth} {
		x.done()
	}
	if f.machines() != 0 {
		t.Error("the VM stays")
	}
}

// TestVMEndsUnderTasks: each is told, and the next one gets a new VM.
func TestVMEndsUnderTasks(t *testing.T) {
	f := newFarmhouse(t)
	first, second := f.mustAsk(f.caller("7"), api.JobRequest{}), f.mustAsk(f.caller("7"), api.JobRequest{})
	vm := first.until(api.EventRunning)
	second.until(api.EventRunning)
	f.host.End(vm.ID, "killed")
	for _, x := range []*task{first, second} {
		lost := false
		for e := range x.events {
			lost = lost || e.Event == api.EventLost
		}
		if !lost {
			t.Error("a task was not told")
		}
	}
	if next := f.mustAsk(f.caller("7"), api.JobRequest{}); next.until(api.EventRunning).ID == vm.ID {
		t.Error("a dead VM takes tasks")
	}
}

func TestTaskOfAnotherImage(t *testing.T) {
	f := newFarmhouse(t)
	f.mustAsk(f.caller("7"), api.JobRequest{Image: "micro"}).until(api.EventRunning)
	if _, err := f.ask(f.caller("7"), api.JobRequest{Image: "other"}); !farm.IsCode(err, CodeOtherImage) {
		t.Errorf("%v", err)
	}
	f.mustAsk(f.caller("7"), api.JobRequest{Image: "micro"}).until(api.EventRunning)
}

// TestPolicyIsAskedForEachTask: a job's second task is no way around what its first one would not get.
func TestPolicyIsAskedForEachTask(t *testing.T) {
	f := newFarmhouse(t)
	rules := func(r ...policy.Rule) {
		f.agent.mu.Lock()
		f.agent.cfg.Policy = r
		f.agent.mu.Unlock()
	}
	rules(policy.Rule{Name: "all", Mounts: []string{"/data"}})
	vm := f.mustAsk(f.caller("7"), api.JobRequest{}).until(api.EventRunning)
	if _, err := f.ask(f.caller("7"), api.JobRequest{Binds: []api.Bind{{Target: "/etc"}}}); !farm.IsCode(err,
		farm.CodePolicy) {
		t.Errorf("a directory at a place that the policy does not let through: %v", err)
	}
	if second := f.mustAsk(f.caller("7"),
		api.JobRequest{Binds: []api.Bind{{Target: "/data/x"}}}); second.until(api.EventRunning).ID != vm.ID {
		t.Error("a task that is allowed is elsewhere")
	}
	rules(policy.Rule{Name: "closed", Deny: "for repair"})
	if _, err := f.ask(f.caller("7"), api.JobRequest{}); !farm.IsCode(err, farm.CodePolicy) {
		t.Errorf("a task after the policy has changed: %v", err)
	}
}

// TestOneFilesystem: a rule of the policy reaches the wrappers of all tasks of a job, who see to it.
func TestOneFilesystem(t *testing.T) {
	f := newFarmhouse(t)
	yes := true
	f.agent.mu.Lock()
	f.agent.cfg.Policy = []policy.Rule{{Name: "all", OneFilesystem: &yes}}
	f.agent.mu.Unlock()
	for range 2 {
		if vm := f.mustAsk(f.caller("7"), api.JobRequest{}).until(api.EventVM); !vm.OneFilesystem {
			t.Errorf("%+v", vm)
		}
	}
}

// TestBatchJobDoesNotOutliveItsCaller: neither by being kept, nor by a connection that somebody else holds open.
func TestBatchJobDoesNotOutliveItsCaller(t *testing.T) {
	f := newFarmhouse(t)
	inBatch := func(c Caller, batch string) Caller {
		c.Batch = f.caller(batch).Batch
		return c
	}
	f.mustAsk(f.caller("7"), api.JobRequest{}).until(api.EventRunning)
	for _, batch := range []string{"7", "8"} { // with a VM already, and without
		if _, err := f.ask(f.caller(batch), api.JobRequest{Keep: true}); !farm.IsCode(err, farm.CodeBadRequest) ||
			!farm.IsKind(err, farm.Denied) {
			t.Errorf("job %s keeps a VM: %v", batch, err)
		}
	}
	wrapper := exec.Command("/bin/sleep", "1000")
	if err := wrapper.Start(); err != nil {
		t.Fatal(err)
	}
	defer wrapper.Process.Kill()
	c, err := Caller{PID: wrapper.Process.Pid, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}.withLimits()
	if err != nil {
		t.Fatal(err)
	}
	first, second := f.mustAsk(inBatch(c, "9"), api.JobRequest{}), f.mustAsk(inBatch(c, "7"), api.JobRequest{})
	first.until(api.EventRunning)
	second.until(api.EventRunning)
	wrapper.Process.Kill()
	wrapper.Wait()
	for _, x := range []*task{first, second} {
		select {
		case <-x.job.over:
		case <-time.After(waittest.Limit):
			t.Fatal("the job goes on without its caller")
		}
	}
	if f.machines() != 1 {
		t.Errorf("%d VMs, want that of the caller who lives", f.machines())
	}
}

// TestTaskRecordIsRead holds the file of a task to what an earlier agent wrote: fields are only ever added.
func TestTaskRecordIsRead(t *testing.T) {
	const old = `{"Job":"j","Port":3,"User":"alice","Command":"step","Caller":{"PID":7,"Start":9,"UID":1000},"Keep":false,"Later":1}`
	m := &machine.Machine{Sockets: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(m.Sockets, tasksDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.Sockets, tasksDir, "j.json"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := tasksOf(m)
	if err != nil || len(got) != 1 || got[0].Port != 3 || got[0].Caller.Start != 9 || got[0].User != "alice" {
		text, _ := json.Marshal(got)
		t.Errorf("%s, %v", text, err)
	}
}
