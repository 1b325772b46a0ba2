package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/batch/systems"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/gateway/features"
	"github.com/grange-project/grange/internal/policy"
)

// Batch is what holds for jobs of batch systems.
type Batch struct {
	// directories that every batch job's VM gets where no rule of the policy says otherwise: SRC[:DST[:ro]]
	Binds       []string
	Requeues    int           // how often a job whose VM was not started may be queued again
	WaitTimeout time.Duration // how long a job's VM waits for room, or for a hypervisor that is away
	System      string        // the batch system that this host belongs to, told when the host is sick; "": none
	Node        string        // what it calls this host; "": the short host name
	Program     string        // the site's own program, for the system "exec"
	Comments    bool          // the system is told what jobs have used in their VMs
}

// NodeName returns the name of this host in its batch system; "" without a batch system.
func (b Batch) NodeName() (string, error) {
	if b.Node != "" || b.System == "" {
		return b.Node, nil
	}
	host, err := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	return short, err
}

// DefaultRequeues bounds how often a job whose VM does not start goes around, where nobody said otherwise.
const DefaultRequeues = 3

// defaultWaitTimeout: libvirtd restarts, and the VM of the job before is cleaned up, within seconds also on a busy
// host. What takes longer needs somebody, and holds CPUs meanwhile that the batch system could use elsewhere.
const defaultWaitTimeout = "30s"

type batchFile struct {
	Binds       []string `toml:"binds"`
	Requeues    int      `toml:"requeues"`
	WaitTimeout string   `toml:"wait_timeout"`
	System      string   `toml:"system"`
	Node        string   `toml:"node"`
	Program     string   `toml:"program"`
	Comments    bool     `toml:"comments"`
	Patience    string   `toml:"patience"` // what wait_timeout was called
}

func (f batchFile) batch() (Batch, error) {
	const most = 1000
	if f.Requeues < 0 || f.Requeues > most {
		return Batch{}, fmt.Errorf("batch.requeues: %d is not between 0 and %d", f.Requeues, most)
	}
	if f.WaitTimeout == defaultWaitTimeout && f.Patience != "" {
		f.WaitTimeout = f.Patience
	}
	timeout, err := time.ParseDuration(f.WaitTimeout)
	if err != nil {
		return Batch{}, fmt.Errorf("batch.wait_timeout: %w", err)
	}
	if timeout < time.Second || timeout > time.Hour {
		return Batch{}, fmt.Errorf("batch.wait_timeout: %v is not between 1s and 1h", timeout)
	}
	for _, b := range f.Binds {
		if err := checkBind(b); err != nil {
			return Batch{}, fmt.Errorf("batch.binds: %w", err)
		}
	}
	kind, known := systems.Find(farm.BatchSystem(f.System))
	switch {
	case f.System != "" && !known:
		return Batch{}, fmt.Errorf("batch.system: invalid value %q: expected one of %s", f.System, systems.Names())
	case kind.Program && !filepath.IsAbs(f.Program):
		return Batch{}, fmt.Errorf("batch.program: %q is not an absolute path", f.Program)
	}
	return Batch{Binds: append([]string(nil), f.Binds...), Requeues: f.Requeues, WaitTimeout: timeout, System: f.System,
		Node: f.Node, Program: f.Program, Comments: f.Comments}, nil
}

func checkBind(text string) error {
	b, err := farm.ParseBind(text)
	if err == nil && (!filepath.IsAbs(b.Source) || filepath.Clean(b.Source) == "/") {
		err = fmt.Errorf("%q is not an absolute path below /", text)
	}
	if err == nil {
		_, err = features.Choose(b)
	}
	return err
}

// ruleFile is one [[policy]]; policy.Rule says what its keys mean.
type ruleFile struct {
	Name       string         `toml:"name"`
	Users      []string       `toml:"users"`
	Groups     []string       `toml:"groups"`
	Accounts   []string       `toml:"accounts"`
	Queues     []string       `toml:"queues"`
	Systems    []string       `toml:"systems"`
	Image      string         `toml:"image"`
	Images     []string       `toml:"images"`
	Shape      string         `toml:"shape"`
	Shapes     []string       `toml:"shapes"`
	Network    string         `toml:"network"`
	Networks   []string       `toml:"networks"`
	Binds      []string       `toml:"binds"`
	Mounts     []string       `toml:"mounts"`
	OneFS      *bool          `toml:"one_filesystem"`
	Gateways   []farm.Gateway `toml:"gateways"`
	MaxCPUs    int            `toml:"max_cpus"`
	MaxMemory  string         `toml:"max_memory"`
	MaxScratch string         `toml:"max_scratch"`
	Deny       string         `toml:"deny"`
}

// rules checks each rule, and all of them together: a shape that is not there would fail jobs one by one.
func rules(files []ruleFile, shapes map[string]farm.Shape, networks map[string]SiteNetwork) ([]policy.Rule, error) {
	var all []policy.Rule
	seen := map[string]bool{}
	for i, f := range files {
		if f.Name == "" {
			f.Name = fmt.Sprintf("policy %d", i+1)
		}
		r, err := f.rule(shapes, networks)
		if err == nil && seen[f.Name] {
			err = errors.New("there is another rule of that name")
		}
		if err != nil {
			return nil, fmt.Errorf("policy: rule %q: %w", f.Name, err)
		}
		seen[f.Name] = true
		all = append(all, r)
	}
	return all, nil
}

func (f ruleFile) rule(shapes map[string]farm.Shape, networks map[string]SiteNetwork) (policy.Rule, error) {
	r := policy.Rule{Name: f.Name, Users: f.Users, Groups: f.Groups, Accounts: f.Accounts, Queues: f.Queues,
		Systems: f.Systems, Image: f.Image, Images: f.Images, Shape: f.Shape, Shapes: f.Shapes, Network: f.Network,
		Networks: f.Networks, Binds: f.Binds, Mounts: f.Mounts, OneFilesystem: f.OneFS, Gateways: f.Gateways,
		MaxCPUs: f.MaxCPUs,
		Deny:    f.Deny}
	for _, b := range f.Binds {
		if err := checkBind(b); err != nil {
			return r, fmt.Errorf("binds: %w", err)
		}
	}
	if _, ok := shapes[f.Shape]; f.Shape != "" && !ok {
		return r, fmt.Errorf("shape %q is not below [shapes]", f.Shape)
	}
	if _, ok := networks[f.Network]; !ok && f.Network != "" {
		if err := (farm.Shape{CPUs: 1, Memory: farm.MinMemory,
			Network: farm.Network(f.Network)}).Validate(); err != nil {
			return r, fmt.Errorf("network %q is not below [networks]: %w", f.Network, err)
		}
	}
	if f.MaxMemory != "" {
		size, err := farm.ParseBytes(f.MaxMemory)
		if err != nil {
			return r, err
		}
		if size < farm.MinMemory {
			return r, fmt.Errorf("max_memory: no VM lives with less than %v", farm.MinMemory)
		}
		r.MaxMemory = size / farm.MiB * farm.MiB
	}
	if f.MaxScratch != "" {
		size, err := farm.ParseBytes(f.MaxScratch)
		if err != nil {
			return r, err
		}
		r.MaxScratch = &size
	}
	return r, r.Validate(systems.WithJobs())
}
