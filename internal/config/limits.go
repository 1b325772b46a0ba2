package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Limits are what one user may hold of a host at once, in all VMs that were asked for outside of batch jobs. Root has none.
type Limits struct{ CPUs, Memory, Disk Share }

// Share is a part of what there is: "75%", or an amount.
type Share struct {
	Percent int // 0: Amount counts
	Amount  uint64
}

// Of is the share of all there is; never 0 of something.
func (s Share) Of(all uint64) uint64 {
	if s.Percent == 0 {
		return s.Amount
	}
	return max(all/100*uint64(s.Percent)+all%100*uint64(s.Percent)/100, min(all, 1))
}

type limitsFile struct {
	CPUs   string `toml:"cpus"`
	Memory string `toml:"memory"`
	Disk   string `toml:"disk"`
}

func (f limitsFile) limits() (l Limits, err error) {
	count := func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 31) }
	bytes := func(text string) (uint64, error) {
		v, err := farm.ParseBytes(text)
		return uint64(v), err
	}
	for _, x := range []struct {
		key, text string
		parse     func(string) (uint64, error)
		to        *Share
	}{{"cpus", f.CPUs, count, &l.CPUs}, {"memory", f.Memory, bytes, &l.Memory}, {"disk", f.Disk, bytes, &l.Disk}} {
		if *x.to, err = parseShare(x.text, x.parse); err != nil {
			return l, fmt.Errorf("limits.%s: %w", x.key, err)
		}
	}
	return l, nil
}

func parseShare(text string, parse func(string) (uint64, error)) (Share, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 100 {
			return Share{}, fmt.Errorf("%q is not between 1%% and 100%%", text)
		}
		return Share{Percent: n}, nil
	}
	n, err := parse(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q: a share of 0 is none", text)
	}
	return Share{Amount: n}, err
}
