// Command accounting runs hundreds of jobs and cloud VMs on an agent and a server, kills agent, server and machines all
// the time, and counts the records that come out: none may be lost, none doubled, and their CPU time must be what the
// kernel says. Then the same month is read by `grange usage`, as CSV, JSON and messages to APEL, and must add up to the
// same. A Slurm with slurmdbd runs jobs without a VM on the same host meanwhile, and is killed as well: each must be in
// the accounts once, as sacct has it. The last line is JSON.
//
// Machines are processes that burn CPU time and speak as grange-guest does: what is counted of a process does not
// depend on what it runs, and 500 VMs on QEMU take an hour where there is no KVM.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/serverlab"
	"github.com/grange-project/grange/internal/store"
)

// figures are the line at the end.
type figures struct {
	Jobs      int `json:"jobs"`
	Intervals int `json:"intervals"`  // of cloud VMs
	Metal     int `json:"metal_jobs"` // without a VM, as slurmdbd has them
	Kills     int `json:"kills"`
	Lost      int `json:"lost"`
	Doubled   int `json:"doubled"`
	Outside   int `json:"outside"` // that the server holds for what the host cannot have run
	// of VMs that were ended in order, as a part of their CPU time; and of those that were killed, whose last seconds
	// are known by perf alone
	CPUError  float64 `json:"cpu_error"`
	CPUKilled float64 `json:"cpu_error_killed"`
	// CPU time of VMs that died while no agent was there, and that nobody saw, as a part of all
	CPUUnseen float64 `json:"cpu_unseen"`
	Failed    int     `json:"failed"`
	Seconds   float64 `json:"seconds"`
}

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "spawn":
		err = spawn(os.Args[2], os.Args[3])
	case len(os.Args) == 4 && os.Args[1] == "machine":
		err = runMachine(os.Args[2], os.Args[3])
	case len(os.Args) == 3 && os.Args[1] == "agent":
		err = runAgent(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "slurm":
		var jobs int
		if jobs, err = strconv.Atoi(os.Args[3]); err == nil {
			err = runSlurm(os.Args[2], jobs)
		}
	default:
		os.Exit(test())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "accounting:", err)
		os.Exit(1)
	}
}

func test() int {
	jobs := flag.Int("jobs", 450, "`NUMBER` of jobs")
	vms := flag.Int("vms", 50, "`NUMBER` of cloud VMs")
	metal := flag.Int("metal", 150, "`NUMBER` of jobs of Slurm without a VM")
	keep := flag.Bool("keep", false, "leave the directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	f := &figures{}
	err := run(ctx, load{*jobs, *vms, *metal}, *keep, f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "accounting:", err)
		f.Failed++
	}
	if f.Lost+f.Doubled+f.Outside > 0 || f.CPUError > 0.001 || f.CPUKilled > 0.1 {
		f.Failed++
	}
	f.Seconds = math.Round(time.Since(began).Seconds())
	text, _ := json.Marshal(f)
	fmt.Println(string(text))
	return min(f.Failed, 1)
}

// site is what runs, and what the kernel said of what has run.
type site struct {
	dir, program, self, address string
	ctx                         context.Context
	farm                        *store.Store // the server's; of the one who has cloud VMs run

	mu     sync.Mutex
	pids   map[int]string // of agent and server
	agent  int
	server int
	slurm  int
	gone   chan struct{}       // closed when the Slurm beside is
	stints map[string][]*stint // by job or cloud VM, in their order
	killed map[string]bool     // machines, by ID
	over   bool
}

func (s *site) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// load is how much is run of each kind.
type load struct{ jobs, vms, metal int }

func run(ctx context.Context, n load, keep bool, f *figures) error {
	dir, err := os.MkdirTemp("", "acc") // short: sockets lie below it
	if err != nil {
		return err
	}
	if !keep {
		defer os.RemoveAll(dir)
	}
	s := &site{dir: dir, ctx: ctx, pids: map[int]string{}, stints: map[string][]*stint{},
		killed: map[string]bool{}, gone: make(chan struct{})}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	go s.reap()
	defer s.end()
	if err := s.begin(n.metal); err != nil {
		return err
	}
	fmt.Printf("%d jobs, %d cloud VMs, and %d jobs of Slurm, under kills of agent, server, machines, slurmctld and "+
		"slurmdbd\n", n.jobs, n.vms, n.metal)
	chaos, calm := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { f.Kills = s.chaos(chaos) })
	f.Jobs = s.work(n.jobs, n.vms)
	calm()
	all.Wait()
	if s.farm != nil {
		if err := s.farm.Close(); err != nil {
			return err
		}
	}
	return s.judge(f)
}

// prepare builds the program and writes what everybody reads.
func (s *site) prepare() error {
	// Orphans come to this process, and with them what the kernel counted.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, 36 /* PR_SET_CHILD_SUBREAPER */, 1, 0); errno != 0 {
		return errno
	}
	s.program = s.path("grange")
	build := exec.Command("go", "build", "-o", s.program, "./cmd/grange")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	for _, d := range []string{"m", "m/" + pidsDir, "identity", "image"} {
		if err := os.MkdirAll(s.path(d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(s.path("identity"), 0o700); err != nil {
		return err
	}
	kernel := make([]byte, 4096)
	copy(kernel[0x1fe:], "\x55\xaa\xeb\x66HdrS\x0f\x02")
	for name, text := range map[string][]byte{"vmlinuz": kernel, "initrd": []byte("x"), "cmdline": []byte("quiet")} {
		if err := os.WriteFile(s.path("image", name), text, 0o644); err != nil {
			return err
		}
	}
	address, err := serverlab.FreeAddress()
	if err != nil {
		return err
	}
	s.address = address
	for name, text := range map[string]string{
		"server.toml": fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n[brokers.west]\nsystem = "+
			"\"slurm\"\nenvironment = { SLURM_CONF = %q }\n[usage]\nhost_jobs = true\nvos = { people = "+
			"\"/people/Role=production\" }\n", s.path("farm.db"), s.path("server.sock"), address, "https://"+address,
			s.path(slurmConf)),
		"farm.toml": "[cells.general]\nbroker = \"west\"\nbatch = \"main\"\ndefault = true\n[projects.people]\n",
		"url":       "https://" + address,
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
