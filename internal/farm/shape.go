package farm

import "fmt"

// Limits of what a VM may ask for; far beyond any host, so that absurd requests fail early and clearly.
const (
	MaxCPUs    = 4096
	MaxMemory  = 64 * TiB
	MaxScratch = 1024 * TiB
	MinMemory  = 64 * MiB // below this no Debian kernel unpacks its initramfs
)

// Network is how a VM reaches others.
type Network string

// Networks.
const (
	NetworkNone Network = "none"
	NetworkUser Network = "user" // QEMU's user-mode network: outgoing connections only
)

// Shape is the size and tuning of a VM.
type Shape struct {
	Name     string
	CPUs     int
	Memory   Bytes
	Scratch  Bytes // disk at /tmp; 0: /tmp is in memory
	PageSize Bytes // of huge pages; 0: ordinary pages
	Network  Network
	Guest    GuestTopology // zero: follow the pins
}

// Validate refuses shapes that no host could hold.
func (s Shape) Validate() error {
	switch {
	case s.CPUs < 1 || s.CPUs > MaxCPUs:
		return badShape("%d CPUs", s.CPUs)
	case s.Memory < MinMemory || s.Memory > MaxMemory:
		return badShape("%v of memory; the least is %v", s.Memory, MinMemory)
	case s.Memory%MiB != 0:
		return badShape("%v of memory is no multiple of 1M", s.Memory)
	case s.Scratch > MaxScratch:
		return badShape("%v of scratch", s.Scratch)
	case s.Scratch != 0 && s.Scratch < 4*MiB:
		return badShape("%v of scratch; the least is 4M", s.Scratch)
	case s.PageSize != 0 && s.PageSize != 2*MiB && s.PageSize != GiB:
		return badShape("pages of %v; there are 2M and 1G", s.PageSize)
	case s.Network != NetworkNone && s.Network != NetworkUser:
		return badShape("network %q; there are none and user", s.Network)
	}
	return nil
}

func badShape(format string, args ...any) error {
	return &Error{Kind: Invalid, Code: CodeBadShape, Message: "no VM can have " + fmt.Sprintf(format, args...), Hint: "see `grange exec --help` for sizes, `grange host show` for what this host has"}
}
