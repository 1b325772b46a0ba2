package vmimage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"
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

// withoutSignature cuts a module's signature off. The kernel takes unsigned modules where signatures are not enforced, so the
// check protects nothing: whoever could change a module of the initramfs could change its init. It costs an emulated guest
// 34 ms of every boot. The kernel marks itself tainted (E).
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

// readModule reads what a module says of itself in its .modinfo section. depmod reads the same; its modules.dep is made when a
// kernel package is installed, and we never install one.
func readModule(p string, data []byte) (name string, m module, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return "", module{}, fmt.Errorf("module %s: %w", p, err)
	}
	s := f.Section(".modinfo")
	if s == nil {
		return "", module{}, fmt.Errorf("module %s has no .modinfo", p)
	}
	info, err := s.Data()
	if err != nil {
		return "", module{}, fmt.Errorf("module %s: %w", p, err)
	}
	m = module{path: p, data: withoutSignature(data)}
	for field := range strings.SplitSeq(string(info), "\x00") {
		switch key, value, _ := strings.Cut(field, "="); {
		case key == "depends" && value != "":
			m.depends = strings.Split(value, ",")
		case key == "name":
			name = value
		}
	}
	// The file may be called virtio-rng.ko and the module virtio_rng.
	if name == "" {
		name = strings.TrimSuffix(path.Base(p), ".ko")
	}
	return strings.ReplaceAll(name, "-", "_"), m, nil
}

// loadOrder adds the wanted modules of all groups, and what they depend on, to t, and returns the lines "GROUP PATH" of
// /etc/grange/modules: what comes first must be loaded first. What "boot" has, later groups do not repeat.
func loadOrder(t tree, have map[string]module, groups []moduleGroup) (lines []byte, err error) {
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
				return fmt.Errorf("kernel modules depend on each other in a circle: %s", strings.Join(append(by, name), " → "))
			}
			m, ok := have[name]
			if !ok {
				return fmt.Errorf("the kernel package has no module %s (wanted by %s)", name, strings.Join(append([]string{g.name}, by...), " → "))
			}
			for _, d := range m.depends {
				if err := add(d, append(by, name)); err != nil {
					return err
				}
			}
			done = append(done, name)
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
