package vmimage

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// MicroName is the name of the image that BuildMicro makes.
const MicroName = "micro"

// microCmdline is the kernel command line of the micro image. "quiet" still shows errors and panics, and a panic ends
// the VM. Without the self-tests of its ciphers a kernel under emulation is up 0.34 s of 1.88 s earlier (10 boots each,
// in turns). no_timer_check is what Linux does by itself under KVM: a guest on a loaded host may miss the ticks that
// the check counts. It made no difference in 120 boots each way. Neither did rcu_expedited, audit=0, trust_cpu, nokaslr
// and i8042.*, so they are left out; tsc=reliable is, because it may hurt where the TSC is not.
const microCmdline = "quiet console=ttyS0 panic=-1 cryptomgr.notests no_timer_check"

// BuildOptions say what goes into the micro image.
type BuildOptions struct {
	Name        string // of the image; empty means MicroName
	GuestBinary string // path of grange-guest, a static x86-64 program: becomes /init
	// further Debian packages, whole; libraries come from the packages that these depend on
	Packages []string
	Modules  []string          // further modules of the kernel, as the group "change"
	Files    map[string][]byte // further files, which may be run; paths have no leading slash
	Progress func(text string) // is told what is being done; may be nil
}

// microFiles are the programs of the micro image that busybox does not have, or has with less: lscpu shows all
// topology, xz compresses, and job scripts say #!/bin/bash. Their libraries follow.
var microFiles = []string{"usr/bin/lscpu", "usr/bin/xz", "usr/bin/bash", "usr/bin/dash"}

// microLocale is what LC_ALL=C.UTF-8 needs, which jobs bring from their logins: bash warns where it is missing, and
// takes no character of more than a byte for one. It has 0.4 MB.
const microLocale = "usr/lib/locale/C.utf8/"

// microPackages have microFiles, microLocale, busybox and their libraries.
var microPackages = []string{"busybox-static", "bash", "dash", "libc-bin", "libc6", "liblzma5", "libsmartcols1",
	"libtinfo6", "util-linux", "xz-utils"}

// microKernel is the kernel's meta package: small, with the drivers of virtual machines only.
const microKernel = "linux-image-cloud-amd64"

// BuildMicro builds the micro image, a kernel and an initramfs in memory, from packages of the host's own Debian
// sources. Nothing is installed on the host, and root is not needed. The same packages and the same guest give the same
// digest. Errors: CodeImageBuild, farm.CodeDiskFull, CodeBadImageName, farm.CodeImageStore.
func (s *Store) BuildMicro(ctx context.Context, o BuildOptions) (Image, error) {
	if o.Name == "" {
		o.Name = MicroName
	}
	if err := CheckName(o.Name); err != nil {
		return Image{}, err
	}
	for _, p := range o.Packages {
		if !validPackage.MatchString(p) {
			return Image{}, &farm.Error{Kind: farm.Invalid, Code: CodeImageBuild,
				Message: fmt.Sprintf("invalid package name %q", p), Hint: "name Debian packages"}
		}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	guest, err := readGuest(o.GuestBinary)
	if err != nil {
		return Image{}, err
	}
	a, err := s.newApt()
	if err != nil {
		return Image{}, err
	}
	defer a.close()
	kernelPackage, err := a.realKernel(ctx, microKernel)
	if err != nil {
		return Image{}, err
	}
	library, err := a.libraryPackages(ctx, o.Packages, microPackages)
	if err != nil {
		return Image{}, err
	}
	debs, err := s.fetch(ctx, a, slices.Concat([]string{kernelPackage}, microPackages, library, o.Packages), o.Progress)
	if err != nil {
		return Image{}, err
	}
	o.Progress("unpacking " + kernelPackage)
	kernel, modules, err := s.unpackKernel(ctx, debs[0])
	if err != nil {
		return Image{}, err
	}
	all, t := tree{}, tree{}
	for n, d := range debs[1:] {
		o.Progress("unpacking " + d.name)
		own := tree{}
		if err := s.unpack(ctx, d, own, wanted); err != nil {
			return Image{}, err
		}
		maps.Copy(all, own)
		if n >= len(microPackages)+len(library) {
			maps.Copy(t, own)
		}
	}
	for name, data := range o.Files {
		t.file(name, 0o755, data)
	}
	groups := slices.Clone(microModules)
	if len(o.Modules) > 0 {
		groups = append(groups, moduleGroup{"change", o.Modules})
	}
	if err := microTree(t, all, guest, modules, groups); err != nil {
		return Image{}, err
	}
	o.Progress("writing the image")
	d, err := s.newDraft()
	if err != nil {
		return Image{}, err
	}
	defer d.discard()
	d.image = Image{Kind: Kernel, Cmdline: microCmdline,
		Description: "busybox, bash and lscpu in memory, " + kernelPackage}
	name := "vmlinuz"
	if elf, err := extractKernel(kernel); err == nil {
		name, kernel = "vmlinux", elf
	} else {
		o.Progress("keeping the kernel compressed: " + err.Error())
	}
	if err := d.write(name, bytes.NewReader(kernel)); err != nil {
		return Image{}, err
	}
	var initrd bytes.Buffer
	if err := t.writeCPIO(&initrd); err != nil {
		return Image{}, err
	}
	if err := d.write(initrdFile, &initrd); err != nil {
		return Image{}, err
	}
	if err := ctx.Err(); err != nil {
		return Image{}, err
	}
	return d.commit(o.Name)
}

// wanted leaves out what nobody reads in a VM that lives for one job.
func wanted(p string) bool {
	for _, d := range []string{"usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/",
		"usr/share/lintian/", "usr/share/bash-completion/"} {
		if strings.HasPrefix(p, d) {
			return false
		}
	}
	return true
}

// readGuest reads the guest's program and checks that it can be an init: static, for this kind of machine.
func readGuest(p string) ([]byte, error) {
	bad := func(what string, err error) error {
		return &farm.Error{Kind: farm.Invalid, Code: CodeImageBuild,
			Message: fmt.Sprintf("guest program %q %s", p, what),
			Hint:    "build it with `CGO_ENABLED=0 go build ./cmd/grange-guest`", Err: err}
	}
	data, err := os.ReadFile(p)
	if err != nil {
		return nil, bad("cannot be read", err)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil || f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return nil, bad("is not an x86-64 program", err)
	}
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			return nil, bad("is not a static program", nil)
		}
	}
	return data, nil
}

// unpackKernel reads the kernel and the files of all its modules.
func (s *Store) unpackKernel(ctx context.Context, d deb) (kernel []byte, modules kernelModules, err error) {
	t := tree{}
	err = s.unpack(ctx, d, t, func(p string) bool {
		return strings.HasPrefix(p, "boot/vmlinuz-") || isModule(p)
	})
	if err != nil {
		return nil, nil, err
	}
	modules = kernelModules{}
	for _, p := range slices.Sorted(maps.Keys(t)) {
		if strings.HasPrefix(p, "boot/") {
			kernel = t[p].data
			continue
		}
		modules.add(p, t[p].data)
	}
	if kernel == nil || len(modules) == 0 {
		return nil, nil, buildError("package "+d.name+" has no kernel or no modules as expected",
			"the packages of this release are new to grange: report it", nil)
	}
	return kernel, modules, nil
}

// microTree fills t with the micro image's files, taken from the unpacked packages in all.
func microTree(t, all tree, guest []byte, modules kernelModules, groups []moduleGroup) error {
	for _, d := range []string{"dev", "etc/grange", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys",
		"usr/bin", "usr/lib64", "usr/local/bin", "usr/sbin", "var/log"} {
		t.dir(d, 0o755)
	}
	t.dir("root", 0o700)
	t.dir("tmp", fs.ModeSticky|0o777)
	t.dir("var/tmp", fs.ModeSticky|0o777)
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		t.link(d, "usr/"+d)
	}
	t.link("var/run", "../run")
	t.link("etc/mtab", "../proc/self/mounts")
	t.link("init", "usr/sbin/grange-guest")
	t.file("usr/sbin/grange-guest", 0o755, guest)
	for p, text := range microEtc {
		t.file(p, 0o644, []byte(text))
	}

	lines, err := loadOrder(t, modules.read, groups)
	if err != nil {
		return buildError("the kernel's modules do not fit together",
			"the packages of this release are new to grange: report it", err)
	}
	t.file("etc/grange/modules", 0o644, lines)

	for _, p := range microFiles {
		n, ok := all[p]
		if !ok {
			return buildError("no package has /"+p, "the packages of this release are new to grange: report it", nil)
		}
		t[p] = n
	}
	for p, n := range all {
		if strings.HasPrefix(p, microLocale) {
			t[p] = n
		}
	}
	busybox, ok := all["usr/bin/busybox"]
	if !ok {
		return buildError("no package has /bin/busybox", "", nil)
	}
	t["usr/bin/busybox"] = busybox
	applets, err := busyboxApplets(busybox.data)
	if err != nil {
		return buildError("busybox does not tell what it can do",
			"the packages of this release are new to grange: report it", err)
	}
	// As on Debian. busybox's own shell runs busybox's programs, whatever PATH says: a script would get other programs
	// than on the host.
	t.link("usr/bin/sh", "dash")
	for _, a := range applets {
		p := path.Join("usr/bin", a)
		if _, real := t[p]; !real && !slices.Contains(noApplets, a) {
			t.link(p, "busybox")
		}
	}
	for _, p := range slices.Sorted(maps.Keys(t)) {
		if strings.HasPrefix(p, "usr/lib/modules/") {
			continue
		}
		if err := libraries(t, all, p); err != nil {
			return err
		}
	}
	return nil
}

// noApplets would pretend that the image has a package system or another init.
var noApplets = []string{"busybox", "dpkg", "dpkg-deb", "init", "linuxrc", "rpm", "run-init"}

// busyboxApplets reads the names of busybox's programs from its table: sorted names, each ended by a zero byte, an
// empty one last. What comes before the table is a release's own. (Asking busybox with --list would mean to run a
// downloaded program.)
func busyboxApplets(program []byte) ([]string, error) {
	first := []byte("[\x00[[\x00")
	err := errors.New("no table of names found")
	for rest := program; ; rest = rest[1:] {
		at := bytes.Index(rest, first)
		if at < 0 {
			return nil, err
		}
		rest = rest[at:]
		var names []string
		if names, err = appletTable(rest); err == nil {
			return names, nil
		}
	}
}

func appletTable(rest []byte) (names []string, err error) {
	for {
		name, after, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(name) > 32 || len(names) > 1000 {
			return nil, errors.New("the table of names has no end")
		}
		// The linker may pad the table's end with text of its neighbour; names are sorted, so disorder is the end as
		// well.
		if len(name) == 0 || len(names) > 0 && string(name) <= names[len(names)-1] {
			break
		}
		names, rest = append(names, string(name)), after
	}
	if !slices.Contains(names, "sh") || !slices.Contains(names, "zcat") {
		return nil, fmt.Errorf("%d names, and no sh or zcat among them", len(names))
	}
	return names, nil
}

// microEtc is the configuration of the micro image. grange-guest adds the job's user.
var microEtc = map[string]string{
	"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"etc/group":  "root:x:0:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: " +
		"files\nservices: files\n",
	"etc/hosts":      "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
	"etc/hostname":   "micro\n",
	"etc/shells":     "/bin/sh\n/bin/bash\n",
	"etc/profile":    "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin\n",
	"etc/protocols":  "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\n",
	"etc/os-release": "ID=grange-micro\nID_LIKE=debian\nNAME=\"grange micro\"\nPRETTY_NAME=\"grange micro image\"\n",
}
