package config

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// Minimum is what a host must have free to take another VM; 0: that does not matter.
type Minimum struct {
	Disk   farm.Bytes // in the file system of state_dir, where images, overlays and scratch lie
	Memory farm.Bytes // that the kernel calls available
}

type minimumFile struct {
	Disk   string `toml:"disk"`
	Memory string `toml:"memory"`
}

func (f minimumFile) minimum() (m Minimum, err error) {
	for _, size := range []struct {
		key, text string
		to        *farm.Bytes
	}{{"disk", f.Disk, &m.Disk}, {"memory", f.Memory, &m.Memory}} {
		if *size.to, err = farm.ParseBytes(size.text); err != nil {
			return m, fmt.Errorf("minimum.%s: %w", size.key, err)
		}
	}
	return m, nil
}
