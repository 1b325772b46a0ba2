package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/grange-project/grange/internal/farm"
)

// farmFile is what people decide of a whole farm, as TOML. Its keys are explained in docs/guide/cells.md.
type farmFile struct {
	Settings *settingsFile                   `toml:"settings,omitempty"`
	Maxima   *maximaFile                     `toml:"maxima,omitempty"`
	Cells    map[string]cellFile             `toml:"cells,omitempty"`
	Projects map[string]projectFile          `toml:"projects,omitempty"`
	Shapes   map[string]farmShapeFile        `toml:"shapes,omitempty"`
	Networks map[string]networkFile          `toml:"networks,omitempty"`
	Groups   map[string]map[string]groupFile `toml:"groups,omitempty"` // by project and name
	Users    map[string]userFile             `toml:"users,omitempty"`
	Grants   []grantFile                     `toml:"grants,omitempty"`
}

type settingsFile struct {
	BootTimeout  string            `toml:"boot_timeout,omitempty"`
	DefaultImage string            `toml:"default_image,omitempty"`
	Facts        map[string]string `toml:"facts,omitempty,inline"`
}

type maximaFile struct {
	CPUs      int      `toml:"cpus,omitempty"`
	Memory    string   `toml:"memory,omitempty"`
	Scratch   string   `toml:"scratch,omitempty"`
	Sockets   int      `toml:"sockets,omitempty"`
	Cores     int      `toml:"cores,omitempty"`
	Threads   int      `toml:"threads,omitempty"`
	CPUModels []string `toml:"cpu_models,omitempty"`
}

type quotaFile struct {
	VMs     int    `toml:"vms,omitempty"`
	CPUs    int    `toml:"cpus,omitempty"`
	Memory  string `toml:"memory,omitempty"`
	Scratch string `toml:"scratch,omitempty"`
}

type cellFile struct {
	Broker     string            `toml:"broker,omitempty"`
	Batch      string            `toml:"batch,omitempty"`
	Default    bool              `toml:"default,omitempty"`
	Projects   []string          `toml:"projects,omitempty"`
	Open       *bool             `toml:"open,omitempty"`
	Reason     string            `toml:"reason,omitempty"`
	Packing    string            `toml:"packing,omitempty"`
	KeepWhole  int               `toml:"keep_whole,omitempty"`
	Overcommit float64           `toml:"overcommit,omitempty"`
	Limits     *quotaFile        `toml:"limits,omitempty,inline"`
	PerHost    int               `toml:"per_host,omitempty"`
	Services   bool              `toml:"services,omitempty"`
	Labels     map[string]string `toml:"labels,omitempty,inline"`
}

type projectFile struct {
	Account  string     `toml:"account,omitempty"`
	Quota    *quotaFile `toml:"quota,omitempty,inline"`
	Networks []string   `toml:"networks,omitempty"`
	Shapes   []string   `toml:"shapes,omitempty"`
	Images   []string   `toml:"images,omitempty"`
	MaxAge   string     `toml:"max_age,omitempty"`
	Purpose  string     `toml:"purpose,omitempty"`
}

type farmShapeFile struct {
	CPUs         int               `toml:"cpus,omitempty"`
	Memory       string            `toml:"memory,omitempty"`
	Scratch      string            `toml:"scratch,omitempty"`
	PageSize     string            `toml:"page_size,omitempty"`
	Sockets      int               `toml:"sockets,omitempty"`
	Cores        int               `toml:"cores,omitempty"`
	Threads      int               `toml:"threads,omitempty"`
	MaxSockets   int               `toml:"max_sockets,omitempty"`
	MaxCores     int               `toml:"max_cores,omitempty"`
	MaxThreads   int               `toml:"max_threads,omitempty"`
	Purpose      string            `toml:"purpose,omitempty"`
	CPUModel     string            `toml:"cpu_model,omitempty"`
	ThreadPolicy string            `toml:"thread_policy,omitempty"`
	Emulator     string            `toml:"emulator,omitempty"`
	NUMA         string            `toml:"numa,omitempty"`
	Cache        string            `toml:"cache,omitempty"`
	Properties   map[string]string `toml:"properties,omitempty,inline"`
}

type networkFile struct {
	Bridge    string   `toml:"bridge,omitempty"`
	VLAN      int      `toml:"vlan,omitempty"`
	Addresses []string `toml:"addresses,omitempty"`
	Gateway   string   `toml:"gateway,omitempty"`
	DNS       []string `toml:"dns,omitempty"`
	Domain    string   `toml:"domain,omitempty"`
	Names     []string `toml:"names,omitempty"`
	Closed    bool     `toml:"closed,omitempty"`
	Hosts     []string `toml:"hosts,omitempty"`
}

type groupFile struct {
	Affinity string `toml:"affinity"`
}

type userFile struct {
	Subjects []string `toml:"subjects,omitempty"`
	Disabled bool     `toml:"disabled,omitempty"`
}

type grantFile struct {
	User    string `toml:"user"`
	Role    string `toml:"role"`
	Project string `toml:"project,omitempty"`
	Cell    string `toml:"cell,omitempty"`
}

// maxFarmFile bounds a farm file: a site of hundreds of cells and ten thousand users has less.
const maxFarmFile = 8 << 20

// ParseFarm reads a farm file; name stands for it in errors. A kind of which the file has no table is nil: the file
// says nothing of it. What names what is not looked at, for it may be on the server alone.
func ParseFarm(text []byte, name string) (farm.Farm, error) {
	if len(text) > maxFarmFile {
		return farm.Farm{}, badFarmFile(name, fmt.Sprintf("longer than %v", farm.Bytes(maxFarmFile)))
	}
	var f farmFile
	decoder := toml.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return farm.Farm{}, badFarmFile(name, describe(err))
	}
	if err := f.mentioned(text); err != nil {
		return farm.Farm{}, badFarmFile(name, err.Error())
	}
	out, at, err := f.farm()
	if err == nil {
		return out, nil
	}
	own := new(farm.Error)
	message, hint := err.Error(), ""
	if errors.As(err, &own) {
		hint = own.Hint
	}
	if line := lineOf(text, at); line > 0 {
		message = fmt.Sprintf("line %d: %s", line, message)
	}
	bad := badFarmFile(name, message)
	if hint != "" {
		bad.Hint = hint
	}
	return farm.Farm{}, bad
}

// mentioned makes tables that are there and empty differ from those that are not: with --prune they say that there is
// nothing of a kind.
func (f *farmFile) mentioned(text []byte) error {
	var top map[string]any
	if err := toml.Unmarshal(text, &top); err != nil {
		return err
	}
	empty(top, "cells", &f.Cells)
	empty(top, "projects", &f.Projects)
	empty(top, "shapes", &f.Shapes)
	empty(top, "networks", &f.Networks)
	empty(top, "groups", &f.Groups)
	empty(top, "users", &f.Users)
	if _, ok := top["grants"]; ok && f.Grants == nil {
		f.Grants = []grantFile{}
	}
	if _, ok := top["settings"]; ok && f.Settings == nil {
		f.Settings = &settingsFile{}
	}
	if _, ok := top["maxima"]; ok && f.Maxima == nil {
		f.Maxima = &maximaFile{}
	}
	return nil
}

func empty[T any](top map[string]any, key string, table *map[string]T) {
	if _, ok := top[key]; ok && *table == nil {
		*table = map[string]T{}
	}
}

func badFarmFile(name, what string) *farm.Error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadFarm, Message: name + ": " + what,
		Hint: "docs/guide/cells.md explains every key"}
}

// place is a table of the file: its kind, its name, and, of grants, which one it is.
type place struct {
	kind, name string
	nth        int
}

// lineOf is the line on which a table begins; 0 where it cannot be told, as in one that is written inline.
func lineOf(text []byte, at place) int {
	plain := strings.NewReplacer(" ", "", "\t", "", "\r", "", `"`, "", "'", "")
	want, array := plain.Replace("["+at.kind+"."+at.name+"]"), false
	switch {
	case at.kind == "grants":
		want, array = "[[grants]]", true
	case at.name == "":
		want = "[" + at.kind + "]"
	}
	seen := 0
	for i, line := range strings.Split(string(text), "\n") {
		header, _, _ := strings.Cut(line, "#")
		if plain.Replace(header) != want {
			continue
		}
		if !array || seen == at.nth {
			return i + 1
		}
		seen++
	}
	return 0
}

func (f farmFile) farm() (out farm.Farm, at place, err error) {
	if f.Settings != nil {
		s, err := f.Settings.settings()
		if err != nil {
			return out, place{kind: "settings"}, err
		}
		out.Settings = &s
	}
	if f.Maxima != nil {
		m, err := f.Maxima.maxima()
		if err != nil {
			return out, place{kind: "maxima"}, err
		}
		out.Maxima = &m
	}
	if out.Cells, at, err = eachNamed("cells", f.Cells, cellFile.cell); err != nil {
		return out, at, err
	}
	if out.Projects, at, err = eachNamed("projects", f.Projects, projectFile.project); err != nil {
		return out, at, err
	}
	if out.Shapes, at, err = eachNamed("shapes", f.Shapes, farmShapeFile.farmShape); err != nil {
		return out, at, err
	}
	if out.Networks, at, err = eachNamed("networks", f.Networks, networkFile.network); err != nil {
		return out, at, err
	}
	if out.Users, at, err = eachNamed("users", f.Users, userFile.user); err != nil {
		return out, at, err
	}
	if out.Groups, at, err = groups(f.Groups); err != nil {
		return out, at, err
	}
	if f.Grants != nil {
		out.Grants = []farm.Grant{}
	}
	seen := map[farm.Grant]bool{}
	for i, g := range f.Grants {
		grant := farm.Grant{User: g.User, Role: farm.Role(g.Role), Project: g.Project, Cell: g.Cell}
		if err := grant.Validate(); err != nil {
			return out, place{kind: "grants", nth: i}, err
		}
		if seen[grant] {
			return out, place{kind: "grants", nth: i}, fmt.Errorf("grant %v twice", grant)
		}
		seen[grant] = true
		out.Grants = append(out.Grants, grant)
	}
	return out, place{}, nil
}

// eachNamed converts tables in the order of their names; no table at all is nil.
func eachNamed[F, T any](kind string, files map[string]F, convert func(F, string) (T, error)) (list []T, at place,
	err error) {
	if files == nil {
		return nil, place{}, nil
	}
	list = []T{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t, err := convert(files[name], name)
		if err != nil {
			return nil, place{kind: kind, name: name}, err
		}
		list = append(list, t)
	}
	return list, place{}, nil
}

func groups(files map[string]map[string]groupFile) (list []farm.ServerGroup, at place, err error) {
	if files == nil {
		return nil, place{}, nil
	}
	list = []farm.ServerGroup{}
	for _, project := range slices.Sorted(maps.Keys(files)) {
		for _, name := range slices.Sorted(maps.Keys(files[project])) {
			g := farm.ServerGroup{Project: project, Name: name, Affinity: farm.Affinity(files[project][name].Affinity)}
			if err := g.Validate(); err != nil {
				return nil, place{kind: "groups", name: project + "." + name}, err
			}
			list = append(list, g)
		}
	}
	return list, place{}, nil
}

func (f settingsFile) settings() (farm.Settings, error) {
	s := farm.Settings{DefaultImage: f.DefaultImage, Facts: f.Facts}
	if f.BootTimeout != "" {
		timeout, err := parseAge(f.BootTimeout)
		if err != nil {
			return s, fmt.Errorf("settings: boot_timeout: %w", err)
		}
		s.BootTimeout = timeout
	}
	return s, s.Validate()
}

func (f maximaFile) maxima() (farm.Maxima, error) {
	q, err := (&quotaFile{CPUs: f.CPUs, Memory: f.Memory, Scratch: f.Scratch}).quota()
	m := farm.Maxima{CPUs: q.CPUs, Memory: q.Memory, Scratch: q.Scratch,
		Guest: farm.GuestTopology{Sockets: f.Sockets, Cores: f.Cores, Threads: f.Threads}, CPUModels: f.CPUModels}
	if err != nil {
		return m, fmt.Errorf("maxima: %w", err)
	}
	return m, m.Validate()
}

func (f *quotaFile) quota() (q farm.Quota, err error) {
	if f == nil {
		return q, nil
	}
	q.VMs, q.CPUs = f.VMs, f.CPUs
	if q.Memory, err = farm.ParseBytes(cmp.Or(f.Memory, "0")); err != nil {
		return q, fmt.Errorf("memory: %w", err)
	}
	if q.Scratch, err = farm.ParseBytes(cmp.Or(f.Scratch, "0")); err != nil {
		return q, fmt.Errorf("scratch: %w", err)
	}
	return q, nil
}

func (f cellFile) cell(name string) (farm.FarmCell, error) {
	c := farm.Cell{Name: name, Broker: f.Broker, Batch: f.Batch, Default: f.Default, Projects: f.Projects,
		Packing: farm.Packing(f.Packing), KeepWhole: f.KeepWhole, Overcommit: f.Overcommit, PerHost: f.PerHost,
		Services: f.Services, Labels: f.Labels}
	if f.Open != nil && !*f.Open {
		c.Closed, c.Reason = true, f.Reason
	} else if f.Reason != "" {
		return farm.FarmCell{}, fmt.Errorf("cell %s: reason says why a cell is closed, and goes with open = false",
			name)
	}
	var err error
	if c.Limits, err = f.Limits.quota(); err != nil {
		return farm.FarmCell{}, fmt.Errorf("cell %s: limits: %w", name, err)
	}
	c = c.WithDefaults()
	return farm.FarmCell{Cell: c, Open: f.Open}, c.Validate()
}

func (f projectFile) project(name string) (farm.Project, error) {
	p := farm.Project{Name: name, Account: f.Account, Networks: f.Networks, Shapes: f.Shapes, Images: f.Images,
		Purpose: farm.Purpose(f.Purpose)}
	if f.Purpose == farm.PurposeCompute.String() {
		p.Purpose = farm.PurposeCompute
	}
	var err error
	if p.Quota, err = f.Quota.quota(); err != nil {
		return p, fmt.Errorf("project %s: quota: %w", name, err)
	}
	if f.MaxAge != "" {
		if p.MaxAge, err = parseAge(f.MaxAge); err != nil {
			return p, fmt.Errorf("project %s: max_age: %w", name, err)
		}
	}
	return p, p.Validate()
}

// parseAge reads a duration that may be in days: "30d".
func parseAge(text string) (time.Duration, error) {
	const most = 100 * 365
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if _, err := fmt.Sscanf(days, "%d", &n); err != nil || fmt.Sprint(n) != days || n < 0 || n > most {
			return 0, fmt.Errorf("invalid number of days %q", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(text)
}

func (f networkFile) network(name string) (farm.FleetNetwork, error) {
	n := farm.FleetNetwork{Name: name, Bridge: f.Bridge, VLAN: f.VLAN, Gateway: f.Gateway, DNS: f.DNS, Domain: f.Domain,
		Names: f.Names, Closed: f.Closed, Hosts: f.Hosts}
	for _, text := range f.Addresses {
		pool, err := farm.ParseAddressPool(text)
		if err != nil {
			return n, fmt.Errorf("network %s: %w", name, err)
		}
		n.Addresses = append(n.Addresses, pool)
	}
	return n, n.Validate()
}

func (f userFile) user(name string) (farm.User, error) {
	subjects, err := farm.PlainSubjects(f.Subjects)
	if err != nil {
		return farm.User{}, fmt.Errorf("user %s: %w", name, err)
	}
	u := farm.User{Name: name, Subjects: subjects, Disabled: f.Disabled}
	return u, u.Validate()
}
