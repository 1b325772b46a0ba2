package config

import (
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// DiskTuning is how the disks of VMs of one purpose are reached. Empty words and 0 are as the purpose says.
type DiskTuning struct {
	Cache     string `toml:"cache"`
	IO        string `toml:"io"`
	IOThreads int    `toml:"iothreads"`
	Queues    int    `toml:"queues"`
	Discard   string `toml:"discard"`
}

// Disks is the tuning of disks by purpose.
type Disks struct {
	Compute DiskTuning `toml:"compute"`
	Service DiskTuning `toml:"service"`
}

// Of is the tuning for a purpose.
func (d Disks) Of(p farm.Purpose) DiskTuning {
	if p == farm.PurposeService {
		return d.Service
	}
	return d.Compute
}

func (d Disks) check() error {
	for _, p := range []farm.Purpose{farm.PurposeCompute, farm.PurposeService} {
		if err := d.Of(p).check(); err != nil {
			return fmt.Errorf("disks.%v.%w", p, err)
		}
	}
	return nil
}

// Most of what makes sense: QEMU has a thread for each, and a guest sets each queue up.
const mostIOThreads, mostQueues = 64, 256

func (d DiskTuning) check() error {
	for _, w := range []struct {
		key, word string
		words     []string
	}{{"cache", d.Cache, []string{"writeback", "none", "writethrough", "directsync", "unsafe"}},
		{"io", d.IO, []string{"native", "threads", "io_uring"}}, {"discard", d.Discard, []string{"unmap", "ignore"}}} {
		if w.word != "" && !slices.Contains(w.words, w.word) {
			return fmt.Errorf("%s: invalid value %q: expected one of %v", w.key, w.word, w.words)
		}
	}
	switch {
	case d.IOThreads < 0 || d.IOThreads > mostIOThreads:
		return fmt.Errorf("iothreads: %d is not between 0 and %d", d.IOThreads, mostIOThreads)
	case d.Queues < 0 || d.Queues > mostQueues:
		return fmt.Errorf("queues: %d is not between 0 and %d", d.Queues, mostQueues)
	case d.IO == "native" && d.Cache != "" && d.Cache != "none" && d.Cache != "directsync":
		return fmt.Errorf("io: native I/O goes past the page cache, and cache is %q", d.Cache)
	}
	return nil
}
