package hostfacts

import (
	"encoding/binary"
	"path"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hosttree"
)

// image reads what the header of a qcow2 image says. One that is not there, or not ours to read, leaves the disk as it
// is: it may be on storage that only QEMU reaches. See docs/interop/qcow2.txt of QEMU.
func (r *reader) image(d *farm.DomainDisk) {
	if d.Format != "qcow2" || !strings.HasPrefix(d.Path, "/") {
		return
	}
	name := strings.TrimPrefix(path.Clean(d.Path), "/")
	b, err := r.First(name, hosttree.HeaderBytes)
	if err != nil {
		r.miss(name, err)
		return
	}
	if len(b) < 72 || string(b[:4]) != "QFI\xfb" {
		return
	}
	version, bits := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[20:])
	if bits < 9 || bits > 21 { // the limits of QEMU
		return
	}
	d.Cluster = 1 << bits
	d.Size = farm.Bytes(binary.BigEndian.Uint64(b[24:]))
	d.Backing = d.Backing || binary.BigEndian.Uint64(b[8:]) != 0
	d.ExtendedL2 = version >= 3 && len(b) >= 80 && binary.BigEndian.Uint64(b[72:])&(1<<4) != 0
}
