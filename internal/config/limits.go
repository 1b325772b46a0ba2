package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

type limitsFile struct {
	CPUs      string          `toml:"cpus"`
	Memory    string          `toml:"memory"`
	Disk      string          `toml:"disk"`
	Bandwidth string          `toml:"bandwidth"`
	Except    []exceptionFile `toml:"except"`
}

// exceptionFile is one [[limits.except]].
type exceptionFile struct {
	Users     []string `toml:"users"`
	Groups    []string `toml:"groups"`
	CPUs      string   `toml:"cpus"`
	Memory    string   `toml:"memory"`
	Disk      string   `toml:"disk"`
	Bandwidth string   `toml:"bandwidth"`
}

func (f limitsFile) limits() (l policy.Limits, err error) {
	all, err := shares(exceptionFile{CPUs: f.CPUs, Memory: f.Memory, Disk: f.Disk, Bandwidth: f.Bandwidth}, false)
	if err != nil {
		return l, fmt.Errorf("limits.%w", err)
	}
	l.CPUs, l.Memory, l.Disk, l.Bandwidth = all.CPUs, all.Memory, all.Disk, all.Bandwidth
	for i, x := range f.Except {
		e, err := x.exception()
		if err != nil {
			return l, fmt.Errorf("limits.except, number %d: %w", i+1, err)
		}
		l.Except = append(l.Except, e)
	}
	return l, nil
}

func (f exceptionFile) exception() (e policy.Exception, err error) {
	e.Whom = policy.Rule{Users: f.Users, Groups: f.Groups}
	switch {
	case len(f.Users)+len(f.Groups) == 0:
		return e, errors.New("it names no users and no groups; what is for all stands in [limits] itself")
	case f.CPUs+f.Memory+f.Disk+f.Bandwidth == "":
		return e, errors.New("it says nothing of cpus, memory, disk or bandwidth")
	}
	if err := e.Whom.Validate(nil); err != nil {
		return e, err
	}
	whom := e.Whom
	e, err = shares(f, true)
	e.Whom = whom
	return e, err
}

// shares reads the settings, which may be left out where they are optional.
func shares(f exceptionFile, optional bool) (e policy.Exception, err error) {
	count := func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 31) }
	bytes := func(text string) (uint64, error) {
		v, err := farm.ParseBytes(text)
		return uint64(v), err
	}
	rate := func(text string) (uint64, error) {
		v, err := farm.ParseRate(text)
		return uint64(v), err
	}
	for _, x := range []struct {
		key, text string
		parse     func(string) (uint64, error)
		to        *policy.Share
	}{{"cpus", f.CPUs, count, &e.CPUs}, {"memory", f.Memory, bytes, &e.Memory}, {"disk", f.Disk, bytes, &e.Disk},
		{"bandwidth", f.Bandwidth, rate, &e.Bandwidth}} {
		if optional && x.text == "" {
			continue
		}
		if *x.to, err = parseShare(x.text, x.parse); err != nil {
			return e, fmt.Errorf("%s: %w", x.key, err)
		}
	}
	return e, nil
}

func parseShare(text string, parse func(string) (uint64, error)) (policy.Share, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 100 {
			return policy.Share{}, fmt.Errorf("%q is not between 1%% and 100%%", text)
		}
		return policy.Share{Percent: n}, nil
	}
	n, err := parse(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("invalid share %q: it must be above 0", text)
	}
	return policy.Share{Amount: n}, err
}
