package tuning

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// profileFile is what the TOML looks like. A key that is not there means that the profile does not care.
type profileFile struct {
	Name           string         `toml:"name"`
	Title          string         `toml:"title"`
	Role           string         `toml:"role"`
	Match          matchFile      `toml:"match"`
	PageSizes      []string       `toml:"page_sizes"`
	PageShare      float64        `toml:"page_share"`
	Reserved       string         `toml:"reserved"`
	THP            string         `toml:"thp"`
	KSM            string         `toml:"ksm"`
	NUMABalancing  string         `toml:"numa_balancing"`
	Governor       string         `toml:"governor"`
	MaxIdleLatency int            `toml:"max_idle_latency"`
	SMT            string         `toml:"smt"`
	Swappiness     *int           `toml:"swappiness"`
	Overcommit     float64        `toml:"overcommit"`
	Nested         string         `toml:"nested"`
	CPUMode        string         `toml:"cpu_mode"`
	DiskCache      string         `toml:"disk_cache"`
	Pinned         bool           `toml:"pinned"`
	CoreFiles      string         `toml:"core_files"`
	SwapPerCPU     string         `toml:"swap_per_cpu"`
	ScratchPerCPU  string         `toml:"scratch_per_cpu"`
	Sources        []sourceFile   `toml:"source"`
	Overheads      []overheadFile `toml:"overhead"`
}

type matchFile struct {
	OnlyNamed bool     `toml:"only_named"`
	Vendor    string   `toml:"vendor"`
	Models    []string `toml:"models"`
	Family    int      `toml:"family"`
	MinModel  int      `toml:"min_model"`
	MaxModel  int      `toml:"max_model"`
}

type sourceFile struct {
	Keys []string `toml:"keys"`
	Name string   `toml:"name"`
	URL  string   `toml:"url"`
	Says string   `toml:"says"`
}

type overheadFile struct {
	VMs     int     `toml:"vms"`
	VCPUs   int     `toml:"vcpus"`
	Percent float64 `toml:"percent"`
	Tuned   bool    `toml:"tuned"`
	Source  string  `toml:"source"`
}

// ParseProfile reads a profile as TOML; name stands for the text in errors, which are *farm.Error with
// farm.CodeBadProfile. An unknown key is an error: a misspelt wish would be no wish at all.
func ParseProfile(text []byte, name string) (Profile, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return Profile{}, badProfile(name, "it is empty")
	}
	var f profileFile
	decoder := toml.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return Profile{}, badProfile(name, describe(err))
	}
	p, err := f.profile()
	if err != nil {
		return Profile{}, badProfile(name, err.Error())
	}
	return p, nil
}

func badProfile(name, what string) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadProfile, Message: name + ": " + what,
		Hint: "`grange tune profiles NAME` prints one to start from; docs/guide/tuning.md explains every key"}
}

// describe returns where a TOML error is, in one line.
func describe(err error) string {
	if strict := new(toml.StrictMissingError); errors.As(err, &strict) && len(strict.Errors) > 0 {
		row, _ := strict.Errors[0].Position()
		return fmt.Sprintf("line %d: unknown key %q", row, strings.Join(strict.Errors[0].Key(), "."))
	}
	if bad := new(toml.DecodeError); errors.As(err, &bad) {
		row, column := bad.Position()
		return fmt.Sprintf("line %d, column %d: %s", row, column, strings.TrimPrefix(bad.Error(), "toml: "))
	}
	return err.Error()
}

var profileName = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// words are the values that a key may have; the empty one is always allowed.
var words = []struct {
	key   string
	value func(profileFile) string
	known []string
}{
	{"role", func(f profileFile) string { return f.Role }, []string{string(Compute), string(Service), string(Guest)}},
	{"thp", func(f profileFile) string { return f.THP }, []string{"always", "madvise", "never"}},
	{"ksm", func(f profileFile) string { return f.KSM }, onOff},
	{"numa_balancing", func(f profileFile) string { return f.NUMABalancing }, onOff},
	{"smt", func(f profileFile) string { return f.SMT }, onOff},
	{"nested", func(f profileFile) string { return f.Nested }, onOff},
	{"core_files", func(f profileFile) string { return f.CoreFiles }, onOff},
	{"cpu_mode", func(f profileFile) string { return f.CPUMode },
		[]string{"host-passthrough", "host-model", "custom", "maximum"}},
	{"disk_cache", func(f profileFile) string { return f.DiskCache },
		[]string{"none", "writeback", "writethrough", "directsync", "unsafe"}},
}

var onOff = []string{"on", "off"}

func (f profileFile) check() error {
	if !profileName.MatchString(f.Name) {
		return fmt.Errorf("name is %q: write small letters, digits and hyphens", f.Name)
	}
	if f.Role == "" {
		return fmt.Errorf("role is missing: write compute, service or guest")
	}
	for _, w := range words {
		if v := w.value(f); v != "" && !slices.Contains(w.known, v) {
			return fmt.Errorf("%s is %q: write %s", w.key, v, strings.Join(w.known, ", "))
		}
	}
	switch {
	case !(f.PageShare >= 0 && f.PageShare <= 1):
		return fmt.Errorf("page_share is %v: write a part of memory, 0 to 1", f.PageShare)
	case !(f.Overcommit >= 0) || math.IsInf(f.Overcommit, 1):
		return fmt.Errorf("overcommit is %v: write 1 or more, or 0 not to care", f.Overcommit)
	case f.MaxIdleLatency < 0:
		return fmt.Errorf("max_idle_latency is %d: write microseconds", f.MaxIdleLatency)
	case f.Swappiness != nil && (*f.Swappiness < 0 || *f.Swappiness > 200):
		return fmt.Errorf("swappiness is %d: write 0 to 200, or leave the key out not to care", *f.Swappiness)
	case f.Match.MaxModel != 0 && f.Match.MaxModel < f.Match.MinModel:
		return fmt.Errorf("match.max_model is %d, below min_model", f.Match.MaxModel)
	}
	return f.checkSources()
}

func (f profileFile) checkSources() error {
	known := profileKeys()
	for i, s := range f.Sources {
		if s.Name == "" || s.Says == "" {
			return fmt.Errorf("source %d needs a name, and what it says", i+1)
		}
		for _, key := range s.Keys {
			if !slices.Contains(known, key) {
				return fmt.Errorf("source %d is for %q, which is not a key of a profile", i+1, key)
			}
		}
	}
	for i, o := range f.Overheads {
		if o.VMs < 1 || o.VCPUs < 1 || o.Source == "" {
			return fmt.Errorf("overhead %d needs vms, vcpus and a source", i+1)
		}
		if math.IsNaN(o.Percent) || math.IsInf(o.Percent, 0) {
			return fmt.Errorf("overhead %d is %v percent: write a number", i+1, o.Percent)
		}
	}
	return nil
}

// profileKeys are the top keys of a profile.
func profileKeys() []string {
	var keys []string
	for field := range reflect.TypeFor[profileFile]().Fields() {
		keys = append(keys, field.Tag.Get("toml"))
	}
	return keys
}

func (f profileFile) profile() (Profile, error) {
	if err := f.check(); err != nil {
		return Profile{}, err
	}
	p := Profile{
		Name: f.Name, Title: f.Title, Role: Role(f.Role), Match: Match(f.Match), PageShare: f.PageShare,
		THP: f.THP, KSM: f.KSM, NUMABalancing: f.NUMABalancing, Governor: f.Governor,
		MaxIdleLatency: f.MaxIdleLatency, SMT: f.SMT,
		Swappiness: -1, Overcommit: f.Overcommit, Nested: f.Nested, CPUMode: f.CPUMode, DiskCache: f.DiskCache,
		Pinned:    f.Pinned,
		CoreFiles: f.CoreFiles,
	}
	if f.Swappiness != nil {
		p.Swappiness = *f.Swappiness
	}
	for _, size := range []struct {
		key, text string
		to        *farm.Bytes
	}{{"reserved", f.Reserved, &p.Reserved}, {"swap_per_cpu", f.SwapPerCPU, &p.SwapPerCPU}, {"scratch_per_cpu",
		f.ScratchPerCPU, &p.ScratchPerCPU}} {
		if size.text == "" {
			continue
		}
		n, err := farm.ParseBytes(size.text)
		if err != nil {
			return Profile{}, fmt.Errorf("%s: %w", size.key, err)
		}
		*size.to = n
	}
	for _, text := range f.PageSizes {
		n, err := farm.ParseBytes(text)
		if err != nil {
			return Profile{}, fmt.Errorf("page_sizes: %w", err)
		}
		if n < 4*farm.KiB || n&(n-1) != 0 {
			return Profile{}, fmt.Errorf("page_sizes: invalid page size %s", text)
		}
		p.PageSizes = append(p.PageSizes, n)
	}
	for _, s := range f.Sources {
		p.Sources = append(p.Sources, Basis{Keys: s.Keys, Source: Source{Name: s.Name, URL: s.URL, Says: s.Says}})
	}
	for _, o := range f.Overheads {
		p.Overheads = append(p.Overheads, Overhead(o))
	}
	return p, nil
}
