package vmimage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
)

// moduleGroup is what the guest loads for one purpose.
type moduleGroup struct {
	name    string
	modules []string
}

// microModules are the modules of the micro image. grange-guest loads "boot" first and the others when needed. Debian's
// cloud kernel has ext4 and the serial port built in.
var microModules = []moduleGroup{
	{"boot", []string{"virtio_pci", "virtio_console"}},
	{"disk", []string{"virtio_blk"}},
	{"net", []string{"virtio_net"}},
	{"fuse", []string{"fuse"}},
	{"virtiofs", []string{"virtiofs"}},
	{"iso9660", []string{"isofs"}},
	{"overlay", []string{"overlay"}},
	{"erofs", []string{"erofs"}}, // formats of container images
	{"squashfs", []string{"squashfs"}},
	{"rng", []string{"virtio_rng"}},
	{"vsock", []string{"vmw_vsock_virtio_transport"}},
}

// module is one kernel module of a package.
type module struct {
	path    string // without a leading slash
	data    []byte
	depends []string
}

// signatureMark ends a signed module (MODULE_SIG_STRING of the kernel's include/linux/module_signature.h).
var signatureMark = []byte("~Module signature appended~\n")

// withoutSignature cuts a module's signature off. The kernel takes unsigned modules where signatures are not enforced,
// so the check protects nothing: whoever could change a module of the initramfs could change its init. It costs an
// emulated guest 34 ms of every boot. The kernel marks itself tainted (E).
func withoutSignature(data []byte) []byte {
	const infoSize = 12 // struct module_signature; its last four bytes are the signature's length, big-endian
	body, signed := bytes.CutSuffix(data, signatureMark)
	if !signed || len(body) < infoSize {
		return data
	}
	length := uint64(binary.BigEndian.Uint32(body[len(body)-4:])) + infoSize
	if length > uint64(len(body)) {
		return data
	}
	return body[:uint64(len(body))-length]
}

// kernelModules are the files of a kernel's modules by the modules' names. They are read when they are wanted: a kernel
// has thousands, compressed in Debian 13. Those that are built into the kernel have none.
type kernelModules map[string]packed

type packed struct {
	path string
	data []byte
}

// builtinFile lists the modules that are built in, one path a line.
const builtinFile = "modules.builtin"

// add takes the file of a module, or the list of those that are built in.
func (k kernelModules) add(p string, data []byte) {
	if path.Base(p) != builtinFile {
		k[moduleName(p)] = packed{p, data}
		return
	}
	for line := range strings.Lines(string(data)) {
		k[moduleName(strings.TrimSpace(line))] = packed{}
	}
}

// moduleName is virtio_rng of virtio-rng.ko and of virtio-rng.ko.xz.
func moduleName(p string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(path.Base(p), ".xz"), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// isModule reports whether a package's path is one, or the list of those that are built in.
func isModule(p string) bool {
	return strings.HasPrefix(p, "usr/lib/modules/") && (strings.HasSuffix(strings.TrimSuffix(p, ".xz"), ".ko") ||
		path.Base(p) == builtinFile)
}

// maxModule bounds what one may be unpacked to: the largest that Debian has are of 10 MB.
const maxModule = 64 << 20

// read returns a module as the kernel takes it, or an empty one where it is built in, and what it says of itself in its
// .modinfo section. depmod reads the same; its modules.dep is made when a package is installed, and is not in it.
func (k kernelModules) read(name string) (module, error) {
	f, ok := k[name]
	if !ok {
		return module{}, fmt.Errorf("the kernel package has no module %s", name)
	}
	if f.path == "" {
		return module{}, nil
	}
	m := module{path: strings.TrimSuffix(f.path, ".xz"), data: f.data}
	if m.path != f.path {
		unpacked, err := xz.NewReader(bytes.NewReader(f.data))
		if err == nil {
			m.data, err = io.ReadAll(io.LimitReader(unpacked, maxModule))
		}
		if err != nil {
			return module{}, fmt.Errorf("module %s: %w", f.path, err)
		}
	}
	info, err := modInfo(m.data)
	if err != nil {
		return module{}, fmt.Errorf("module %s: %w", f.path, err)
	}
	m.data = withoutSignature(m.data)
	for field := range strings.SplitSeq(string(info), "\x00") {
		if key, value, _ := strings.Cut(field, "="); key == "depends" && value != "" {
			m.depends = strings.Split(value, ",")
		}
	}
	return m, nil
}

func modInfo(data []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no .modinfo")
	}
	return s.Data()
}

// loadOrder adds the wanted modules of all groups, and what they depend on, to t, and returns the lines "GROUP PATH" of
// /etc/grange/modules: what comes first must be loaded first. What "boot" has, later groups do not repeat.
func loadOrder(t tree, read func(name string) (module, error), groups []moduleGroup) (lines []byte, err error) {
	var booted []string
	for i, g := range groups {
		done := slices.Clone(booted)
		var add func(name string, by []string) error
		add = func(name string, by []string) error {
			name = strings.ReplaceAll(name, "-", "_")
			if slices.Contains(done, name) {
				return nil
			}
			if slices.Contains(by, name) {
				return fmt.Errorf("kernel modules depend on each other in a circle: %s",
					strings.Join(append(by, name), " → "))
			}
			m, err := read(name)
			if err != nil {
				return fmt.Errorf("%w (wanted by %s)", err, strings.Join(append([]string{g.name}, by...), " → "))
			}
			for _, d := range m.depends {
				if err := add(d, append(by, name)); err != nil {
					return err
				}
			}
			done = append(done, name)
			if m.path == "" {
				return nil
			}
			t.file(m.path, 0o644, m.data)
			lines = fmt.Appendf(lines, "%s /%s\n", g.name, m.path)
			return nil
		}
		for _, name := range g.modules {
			if err := add(name, nil); err != nil {
				return nil, err
			}
		}
		if i == 0 {
			booted = done
		}
	}
	return lines, nil
}
