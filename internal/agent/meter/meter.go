package meter

import (
	"errors"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper"
	"github.com/grange-project/grange/internal/metrics"
	"github.com/grange-project/grange/internal/numa"
	"github.com/grange-project/grange/internal/vmimage"
)

// Meter counts what an agent does. Its methods may be called from several goroutines, and on a nil Meter.
type Meter struct {
	*metrics.Set
	phases                 *prometheus.HistogramVec
	starts, failures, jobs *prometheus.CounterVec
}

// VM is one VM as others see it, with its process and what its guest reports.
type VM struct {
	View    *api.VM
	PID     int // of its QEMU; 0: it has none
	Started uint64
	Load    machine.Load
	Reports bool // the guest reports its load
}

// Of is a VM with its machine; nil: it has none.
func Of(view *api.VM, m *machine.Machine) VM {
	if m == nil {
		return VM{View: view}
	}
	v := VM{View: view, PID: m.Applied.PID, Started: m.Applied.Started}
	v.Load, v.Reports = m.Load()
	return v
}

// Host is what the figures are read from. Functions may hang, and are asked once at a time.
type Host struct {
	Version     string
	Accelerator func() string
	Kernel      fs.FS // /proc and /sys are below it
	VMs         func() []VM
	Known       func() bool // whether it is known what runs
	TakesVMs    func() bool
	BackOffs    func() []api.BackOff
	Room        func() (room numa.Room, waiting int)
	Topology    func() farm.Topology // as the kernel has it
	Disks       func() (farm.DiskSpace, error)
	Images      func() ([]vmimage.Image, error)
	Daemon      func() hyper.Daemon
	Link        func() (up, wanted bool)
	PerVM       func() bool // whether there are series for each VM
}

// New returns a meter of a host.
func New(h Host) *Meter {
	s := metrics.NewSet()
	m := &Meter{Set: s, starts: s.Counters(starts), failures: s.Counters(failures), jobs: s.Counters(jobs),
		phases: s.Histograms(phases, .05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 900, 3600)}
	m.begin()
	s.Source("agent", h.agent, agentInfo, agentReady, linkUp)
	s.Source("minimum", h.minimum, takesVMs, backOffs)
	s.Source("hypervisor", h.daemon, daemonUp, daemonAnswer, daemonStuck)
	s.Source("vms", h.vms, vmsByState, vmsAlarming, vmsReporting, gateways, services, vmCPU, vmResident, vmSwap, vmWait,
		vmSwapPages)
	s.Source("ledger", h.ledger, cpus, nodeMemory, nodePages, waiting)
	s.Source("disks", h.disks, disks)
	s.Source("images", h.images, images, imageBytes)
	s.Source("kernel", h.kernel, cpuSeconds, memory, swap, swapPages, pressure, ksmState, ksmPages)
	return m
}

// begin has counters that alarms go by at 0, so that the first failure is seen as an increase.
func (m *Meter) begin() {
	for _, result := range []string{okJob, failedJob, failedAtOnce} {
		m.jobs.WithLabelValues(result)
	}
	for _, kind := range []string{Job, Worker, Cloud} {
		for _, result := range []string{started, failedStart} {
			m.starts.WithLabelValues(kind, result)
		}
	}
	for _, code := range []farm.Code{farm.CodeNoImage, farm.CodeBadImage, farm.CodeImageStore, farm.CodeWithdrawn} {
		m.failures.WithLabelValues(string(code))
	}
}

// Phase notes how long a phase of a start took. That of the job itself is none.
func (m *Meter) Phase(name string, took time.Duration) {
	if m != nil && name != "job" {
		m.phases.WithLabelValues(name).Observe(took.Seconds())
	}
}

// Kinds of VMs.
const (
	Job    = "job"
	Worker = "worker"
	Cloud  = "cloud"
)

// Results of starts.
const (
	started     = "started"
	failedStart = "failed"
	leftStart   = "left"
)

// Start notes what has become of a start. An error that is none of ours is that whoever wanted it has gone.
func (m *Meter) Start(kind string, err error) {
	if m == nil {
		return
	}
	result := started
	if _, ours := errors.AsType[*farm.Error](err); ours {
		result = failedStart
	} else if err != nil {
		result = leftStart
	}
	m.starts.WithLabelValues(kind, result).Inc()
}

// Failed counts an error by its code: codes are declared in the program, and few.
func (m *Meter) Failed(err error) {
	if m == nil {
		return
	}
	code := farm.CodeInternal
	if own, ok := errors.AsType[*farm.Error](err); ok {
		code = own.Code
	}
	m.failures.WithLabelValues(string(code)).Inc()
}

// Results of jobs.
const (
	okJob        = "ok"
	failedJob    = "failed"
	failedAtOnce = "failed-at-once"
	atOnce       = 30 * time.Second
)

// Ended notes a job that ran for a time; ok: its exit status is 0.
func (m *Meter) Ended(ran time.Duration, ok bool) {
	if m == nil {
		return
	}
	result := okJob
	if !ok {
		if result = failedJob; ran < atOnce {
			result = failedAtOnce
		}
	}
	m.jobs.WithLabelValues(result).Inc()
}
