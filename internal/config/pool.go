package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/policy"
)

// Pool is a preset for people who work in VMs: what a VM of it is, whom it is for, and how long it may last.
type Pool struct {
	Name  string
	About string // for people
	// Rule is whom the pool is for and what VMs of it have. It goes before the rules of the site's policy.
	Rule policy.Rule
	Home bool // VMs have the home directory of their user

	Idle, Total     time.Duration // after which a VM ends; 0: never
	AtOnce, PerUser int           // VMs of the pool on this host; 0: as many as fit
	Detach          bool          // sessions stay when their terminal goes

	Batch   farm.BatchSystem // whose jobs the VMs are; "": no batch system's
	Options []string         // of the command that submits them
}

type poolFile struct {
	About      string   `toml:"about"`
	Users      []string `toml:"users"`
	Groups     []string `toml:"groups"`
	Image      string   `toml:"image"`
	Images     []string `toml:"images"`
	Shape      string   `toml:"shape"`
	Shapes     []string `toml:"shapes"`
	Network    string   `toml:"network"`
	Networks   []string `toml:"networks"`
	Home       bool     `toml:"home"`
	Binds      []string `toml:"binds"`
	Mounts     []string `toml:"mounts"`
	MaxCPUs    int      `toml:"max_cpus"`
	MaxMemory  string   `toml:"max_memory"`
	MaxScratch string   `toml:"max_scratch"`
	Idle       string   `toml:"idle"`
	Total      string   `toml:"total"`
	AtOnce     int      `toml:"at_once"`
	PerUser    int      `toml:"per_user"`
	Detach     *bool    `toml:"detach"`
	Batch      string   `toml:"batch"`
	Options    []string `toml:"options"`
}

var poolName = lazyregexp.New(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// pools are those of a file, in the order of their names.
func pools(files map[string]poolFile, shapes map[string]farm.Shape, networks map[string]SiteNetwork) ([]Pool, error) {
	var all []Pool
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p, err := files[name].pool(name, shapes, networks)
		if err != nil {
			return nil, fmt.Errorf("pools.%s: %w", name, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func (f poolFile) pool(name string, shapes map[string]farm.Shape, networks map[string]SiteNetwork) (Pool, error) {
	p := Pool{Name: name, About: f.About, Home: f.Home, AtOnce: f.AtOnce, PerUser: f.PerUser,
		Detach: f.Detach == nil || *f.Detach, Batch: farm.BatchSystem(f.Batch), Options: f.Options}
	switch {
	case !poolName.MatchString(name):
		return p, errors.New("invalid name: expected at most 32 of a-z, 0-9, _ and -")
	case p.Batch != "" && p.Batch != farm.Slurm:
		return p, fmt.Errorf("batch: invalid value %q: expected %q or nothing", f.Batch, farm.Slurm)
	case p.Batch != "" && f.Image == "":
		return p, errors.New("image: a job of the batch system has to name one")
	case p.Batch == "" && len(f.Options) > 0:
		return p, errors.New("options: there is no batch system that takes them")
	case f.AtOnce < 0 || f.PerUser < 0:
		return p, errors.New("at_once and per_user: expected 0, for as many as fit, or more")
	case p.Batch != "" && f.AtOnce+f.PerUser > 0:
		return p, errors.New("at_once and per_user: the batch system counts its jobs, as MaxJobs of Slurm's accounts")
	}
	var errs [3]error
	p.Idle, errs[0] = poolLimit("idle", f.Idle)
	p.Total, errs[1] = poolLimit("total", f.Total)
	p.Rule, errs[2] = ruleFile{Name: "pool " + name, Users: f.Users, Groups: f.Groups,
		Systems: []string{cmp.Or(f.Batch, policy.NoSystem)}, Image: f.Image, Images: only(f.Image, f.Images),
		Shape: f.Shape, Shapes: only(f.Shape, f.Shapes), Network: f.Network, Networks: only(f.Network, f.Networks),
		Binds: f.Binds, Mounts: f.Mounts, MaxCPUs: f.MaxCPUs, MaxMemory: f.MaxMemory,
		MaxScratch: f.MaxScratch}.rule(shapes, networks)
	return p, errors.Join(errs[:]...)
}

// only is what may be asked for in a pool: where no list says so, what it gives by itself.
func only(usual string, list []string) []string {
	if usual != "" && len(list) == 0 {
		return []string{usual}
	}
	return list
}

// poolLimit reads how long something may last; "" and "0" are for ever. A limit that leaves no time for a warning helps
// nobody.
func poolLimit(key, text string) (time.Duration, error) {
	d, err := time.ParseDuration(cmp.Or(text, "0"))
	if err == nil && d != 0 && d < 10*time.Second {
		err = errors.New("expected 10s or more, or 0 for no limit")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return d, nil
}

// View is the pool in the words of the agent's API.
func (p Pool) View() api.Pool {
	return api.Pool{Name: p.Name, About: p.About, Image: p.Rule.Image, Images: p.Rule.Images, Shape: p.Rule.Shape,
		Shapes: p.Rule.Shapes, Network: p.Rule.Network, Home: p.Home, Binds: p.Rule.Binds, MaxCPUs: p.Rule.MaxCPUs,
		MaxMemory: uint64(p.Rule.MaxMemory), Idle: int64(p.Idle / time.Second), Total: int64(p.Total / time.Second),
		AtOnce: p.AtOnce, PerUser: p.PerUser, Detach: p.Detach, Batch: string(p.Batch), Options: p.Options}
}
