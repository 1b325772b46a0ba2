// Package config reads the agent's configuration: TOML, in which an unknown key is an error. It checks what can be
// checked without looking at the host, and never reads anything else.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/stricttoml"
)

// Agent is the configuration of one host's agent.
type Agent struct {
	Socket      string // the agent's own socket
	SocketMode  fs.FileMode
	StateDir    string // images and disks
	RunDir      string // sockets of VMs; on a file system that is empty after a boot
	Libvirt     string // libvirt's socket
	LibvirtLogs string // where libvirt's QEMU driver writes a log for each VM
	GuestFile   string // the grange-guest program; empty: beside our own

	Renamed []string // keys that were written by their old names, which hold for one more release: what to write

	VMUIDs farm.UIDs // each VM's QEMU runs as one of its own

	Accelerator  string // auto, kvm or tcg
	ProbeTimeout time.Duration
	BootTimeout  time.Duration // from the first instruction to grange-guest's first word
	StopTimeout  time.Duration // for a cloud VM to power off, before it is ended
	Attempts     int           // VMs tried for one job before it fails

	ReservedCPUs   farm.CPUSet
	ReservedMemory farm.Bytes // AutoReserve: see ReservedOf
	// names, or patterns, of the slurmds on this host whose jobs on the host keep VMs off their CPUs and memory
	SlurmNodes       []string
	Minimum          Minimum
	Limits           policy.Limits
	Overlay          farm.Bytes // that the overlay of a job's VM may take; 0: as much as its image's size
	MemoryOvercommit float64    // grantable memory as a multiple of what there is; 1: never more

	DefaultImage string
	DefaultShape farm.Shape
	Shapes       map[string]farm.Shape
	PrivateVMs   bool              // accounts see their own VMs only; root sees all
	PullImages   []string          // references of container images that jobs of all users may have fetched
	UsageKeep    time.Duration     // how long records of usage are kept
	UnusedImages time.Duration     // after which copies of the catalogue's images are removed; 0: never
	Hook         string            // a script of the site, run in each VM as root before the job
	Facts        map[string]string // what the site knows of this host, as HS06 = "357": given to guests

	Batch       Batch
	Policy      []policy.Rule // in order
	CoreFiles   bool          // jobs leave core files where their callers' limits let them
	Areas       Areas
	Disks       Disks
	Worker      Worker
	Heartbeat   Heartbeat
	UserNetwork UserNetwork
	Network     farm.HostNetworks
	Networks    map[string]SiteNetwork
	Services    []Service   // of the host, for its VMs
	Publish     []PublishTo // to whom ports of VMs may be published
	Pools       []Pool
	Metadata    Metadata
	Metrics     Metrics
	Move        Move
	Transfer    Transfer
	Server      Uplink
}

// file is what the TOML looks like. Its keys are explained in docs/reference/agent.md.
type file struct {
	Socket           string                     `toml:"socket"`
	SocketMode       int                        `toml:"socket_mode"`
	StateDir         string                     `toml:"state_dir"`
	RunDir           string                     `toml:"run_dir"`
	Libvirt          string                     `toml:"libvirt"`
	LibvirtLogs      string                     `toml:"libvirt_logs"`
	GuestFile        string                     `toml:"guest_file"`
	VMUIDs           string                     `toml:"vm_uids"`
	Accelerator      string                     `toml:"accelerator"`
	ProbeTimeout     string                     `toml:"probe_timeout"`
	BootTimeout      string                     `toml:"boot_timeout"`
	StopTimeout      string                     `toml:"stop_timeout"`
	Attempts         int                        `toml:"attempts"`
	ReservedCPUs     string                     `toml:"reserved_cpus"`
	ReservedMemory   string                     `toml:"reserved_memory"`
	MemoryOvercommit float64                    `toml:"memory_overcommit"`
	SlurmNodes       []string                   `toml:"slurm_nodes"`
	DefaultImage     string                     `toml:"default_image"`
	Default          shapeFile                  `toml:"default_shape"`
	Shapes           map[string]shapeFile       `toml:"shapes"`
	PullImages       []string                   `toml:"pull_images"`
	UnusedImages     string                     `toml:"unused_images"`
	UsageKeep        string                     `toml:"usage_keep"`
	Hook             string                     `toml:"hook"`
	Facts            map[string]string          `toml:"facts"`
	PrivateVMs       bool                       `toml:"private_vms"`
	Minimum          minimumFile                `toml:"minimum"`
	Limits           limitsFile                 `toml:"limits"`
	Overlay          string                     `toml:"overlay"`
	Batch            batchFile                  `toml:"batch"`
	Policy           []ruleFile                 `toml:"policy"`
	CoreFiles        bool                       `toml:"core_files"`
	Areas            areasFile                  `toml:"areas"`
	Disks            Disks                      `toml:"disks"`
	Worker           workerFile                 `toml:"worker"`
	Heartbeat        heartbeatFile              `toml:"heartbeat"`
	UserNetwork      userNetworkFile            `toml:"user_network"`
	Network          networkFile                `toml:"network"`
	Networks         map[string]siteNetworkFile `toml:"networks"`
	Services         map[string]serviceFile     `toml:"services"`
	Publish          map[string]publishFile     `toml:"publish"`
	Pools            map[string]poolFile        `toml:"pools"`
	Metadata         metadataFile               `toml:"metadata"`
	Metrics          Metrics                    `toml:"metrics"`
	Move             moveFile                   `toml:"move"`
	Transfer         transferFile               `toml:"transfer"`
	Server           uplinkFile                 `toml:"server"`
}

type shapeFile struct {
	CPUs         int      `toml:"cpus"`
	Memory       string   `toml:"memory"`
	Scratch      string   `toml:"scratch"`
	Disk         string   `toml:"disk"`
	Volumes      []string `toml:"volumes"`
	Swap         string   `toml:"swap"`
	MemoryPeak   string   `toml:"memory_peak"`
	PageSize     string   `toml:"page_size"`
	Network      string   `toml:"network"`
	BandwidthIn  string   `toml:"bandwidth_in"`
	BandwidthOut string   `toml:"bandwidth_out"`
	Sockets      int      `toml:"sockets"`
	Cores        int      `toml:"cores"`
	Threads      int      `toml:"threads"`
	Purpose      string   `toml:"purpose"`
	CPUModel     string   `toml:"cpu_model"`
	ThreadPolicy string   `toml:"thread_policy"`
	Emulator     string   `toml:"emulator"`
	NUMA         string   `toml:"numa"`
	Cache        string   `toml:"cache"`
}

func defaults() file {
	return file{
		Socket: "/run/grange/agent.sock", SocketMode: 0o666, StateDir: "/var/lib/grange", RunDir: "/run/grange",
		Libvirt: "/run/libvirt/libvirt-sock", LibvirtLogs: "/var/log/libvirt/qemu", VMUIDs: DefaultVMUIDs,
		Accelerator: "auto", ProbeTimeout: "20s", BootTimeout: "3m", StopTimeout: "1m", Attempts: 3,
		ReservedMemory: "auto", MemoryOvercommit: 1, SlurmNodes: []string{"*"}, DefaultImage: "micro",
		Default: shapeFile{CPUs: 1, Memory: "1G", PageSize: "any", Network: string(farm.NetworkNone)},
		Minimum: minimumFile{Disk: "1G", Memory: "256M"},
		Limits:  limitsFile{CPUs: "75%", Memory: "75%", Disk: "50%", Bandwidth: "75%"},
		Overlay: "0", UnusedImages: "0", UsageKeep: "9600h", Areas: defaultAreas(), Metadata: metadataFile{Serve: true}, Move: moveFile{Listen: ":8445"},
		Transfer:  transferFile{Listen: ":8446", ReceiveRate: "0", SendRate: "0"},
		Heartbeat: heartbeatFile{Timeout: "5m", Watchdog: true, Action: string(HeartbeatReport)},
		Batch:     batchFile{Requeues: DefaultRequeues, WaitTimeout: defaultWaitTimeout},
	}
}

// DefaultVMUIDs are beyond all that systems hand out: useradd up to 600,100,000 with subordinate IDs, systemd's
// containers up to 1,879,048,191, SSSD and FreeIPA up to 2,000,200,000 by default, systemd again from 2,147,352,576.
const DefaultVMUIDs = "2113929216-2113994751"

// ReadAgent reads the file at path; a missing one means all defaults.
func ReadAgent(path string) (Agent, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Agent{}, err
	}
	return ParseAgent(text, path)
}

// ParseAgent reads TOML text; name stands for it in errors.
func ParseAgent(text []byte, name string) (Agent, error) {
	f := defaults()
	if err := stricttoml.Unmarshal(text, &f); err != nil {
		return Agent{}, bad(name, err.Error())
	}
	a, err := f.agent()
	if err != nil {
		return Agent{}, bad(name, err.Error())
	}
	if f.Batch.Patience != "" {
		a.Renamed = append(a.Renamed, "batch.patience is called batch.wait_timeout now")
	}
	if f.Worker.Bridge != "" {
		a.Renamed = append(a.Renamed, "worker.bridge is called worker.network now, as \"bridge:NAME\"")
	}
	return a, nil
}

func bad(name, what string) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadConfig, Message: name + ": " + what,
		Hint: "docs/reference/agent.md explains every key"}
}

func (f file) agent() (Agent, error) {
	a := Agent{
		Socket: f.Socket, SocketMode: fs.FileMode(f.SocketMode) & fs.ModePerm, StateDir: f.StateDir, RunDir: f.RunDir,
		Libvirt: f.Libvirt, LibvirtLogs: f.LibvirtLogs, GuestFile: f.GuestFile, Accelerator: f.Accelerator,
		Attempts:   f.Attempts,
		SlurmNodes: f.SlurmNodes, MemoryOvercommit: f.MemoryOvercommit, DefaultImage: f.DefaultImage, Hook: f.Hook,
		PullImages: append([]string{}, f.PullImages...),
		Facts:      f.Facts, PrivateVMs: f.PrivateVMs, CoreFiles: f.CoreFiles, Disks: f.Disks,
		Shapes: map[string]farm.Shape{}, Metadata: Metadata(f.Metadata), Metrics: f.Metrics,
	}
	var errs [27]error
	a.ProbeTimeout, errs[0] = time.ParseDuration(f.ProbeTimeout)
	a.BootTimeout, errs[1] = time.ParseDuration(f.BootTimeout)
	a.ReservedCPUs, errs[2] = farm.ParseCPUSet(f.ReservedCPUs)
	a.ReservedMemory, errs[3] = reservedMemory(f.ReservedMemory)
	a.DefaultShape, errs[4] = f.Default.shape("", farm.Shape{})
	errs[5] = errors.Join(f.check(), f.Disks.check(), f.Metrics.check())
	for name, s := range f.Shapes {
		shape, err := s.shape(name, a.DefaultShape)
		if err != nil {
			return Agent{}, fmt.Errorf("shapes.%s: %w", name, err)
		}
		a.Shapes[name] = shape
	}
	a.Batch, errs[6] = f.Batch.batch()
	a.Networks, errs[22] = siteNetworks(f.Networks)
	a.Policy, errs[7] = rules(f.Policy, a.Shapes, a.Networks)
	a.Minimum, errs[8] = f.Minimum.minimum()
	a.Worker, errs[9] = f.Worker.worker(a.Shapes, a.Networks)
	if errs[9] == nil && errs[22] == nil {
		errs[9] = apart(a.Networks, a.Worker)
	}
	a.Server, errs[10] = f.Server.uplink()
	a.StopTimeout, errs[11] = time.ParseDuration(f.StopTimeout)
	a.Limits, errs[12] = f.Limits.limits()
	a.Overlay, errs[13] = farm.ParseBytes(f.Overlay)
	a.Heartbeat, errs[14] = f.Heartbeat.heartbeat()
	a.UserNetwork, errs[15] = f.UserNetwork.userNetwork()
	a.Move, errs[17] = f.Move.parse()
	a.Transfer, errs[18] = f.Transfer.parse()
	a.Areas, errs[19] = f.Areas.areas(f.StateDir)
	a.UnusedImages, errs[20] = unusedImages(f.UnusedImages)
	a.UsageKeep, errs[24] = usageKeep(f.UsageKeep)
	a.Network, errs[21] = f.Network.networks()
	a.Services, errs[23] = services(f.Services)
	a.Publish, errs[26] = published(f.Publish)
	a.Pools, errs[25] = pools(f.Pools, a.Shapes, a.Networks)
	if a.VMUIDs, errs[16] = farm.ParseUIDs(f.VMUIDs); errs[16] != nil {
		errs[16] = fmt.Errorf("vm_uids: %w", errs[16])
	}
	return a, errors.Join(errs[:]...)
}

func (f file) check() error {
	for key, path := range map[string]string{"socket": f.Socket, "state_dir": f.StateDir, "run_dir": f.RunDir,
		"libvirt": f.Libvirt, "libvirt_logs": f.LibvirtLogs} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s: %q is not an absolute path", key, path)
		}
	}
	const longest = 60 // unix sockets of VMs lie below it, and their paths end at 107 bytes
	switch {
	case len(f.RunDir) > longest:
		return fmt.Errorf("run_dir: longer than %d bytes, too long for sockets below it", longest)
	case f.Accelerator != "auto" && f.Accelerator != "kvm" && f.Accelerator != "tcg":
		return fmt.Errorf("accelerator: invalid value %q: expected auto, kvm or tcg", f.Accelerator)
	case f.Attempts < 1 || f.Attempts > 100:
		return fmt.Errorf("attempts: %d is not between 1 and 100", f.Attempts)
	case slices.ContainsFunc(f.SlurmNodes, func(p string) bool { _, err := path.Match(p, ""); return err != nil }):
		return fmt.Errorf("slurm_nodes: invalid names or patterns %q", f.SlurmNodes)
	case f.MemoryOvercommit < 0.1 || f.MemoryOvercommit > 10:
		return fmt.Errorf("memory_overcommit: %v is not between 0.1 and 10", f.MemoryOvercommit)
	}
	return checkPull(f.PullImages)
}

// shape fills what s leaves out from base.
func (s shapeFile) shape(name string, base farm.Shape) (farm.Shape, error) {
	out := base
	out.Name = name
	if s.CPUs != 0 {
		out.CPUs = s.CPUs
	}
	if s.Network != "" {
		out.Network = farm.Network(s.Network)
	}
	if s.Sockets != 0 || s.Cores != 0 || s.Threads != 0 {
		out.Guest = farm.GuestTopology{Sockets: max(s.Sockets, 1), Cores: max(s.Cores, 1), Threads: max(s.Threads, 1)}
	}
	var err error
	if s.Memory != "" {
		if out.Memory, err = farm.ParseBytes(s.Memory); err != nil {
			return farm.Shape{}, err
		}
	}
	bandwidth, err := farm.ParseBandwidth(s.BandwidthIn, s.BandwidthOut)
	if err != nil {
		return farm.Shape{}, err
	}
	if s.BandwidthIn != "" { // "0" lifts what default_shape has
		out.Bandwidth.In = bandwidth.In
	}
	if s.BandwidthOut != "" {
		out.Bandwidth.Out = bandwidth.Out
	}
	out, err = out.WithDisks(farm.DiskTexts{Root: s.Disk, Scratch: s.Scratch, Volumes: s.Volumes, Swap: s.Swap,
		MemoryPeak: s.MemoryPeak})
	if err != nil {
		return farm.Shape{}, err
	}
	out, err = out.With(farm.Tuning{Purpose: s.Purpose, CPUModel: s.CPUModel, ThreadPolicy: s.ThreadPolicy,
		Emulator: s.Emulator, NUMA: s.NUMA, Pages: s.PageSize, Cache: s.Cache})
	if err != nil {
		return farm.Shape{}, err
	}
	return out, out.Validate()
}
