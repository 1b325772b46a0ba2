package hosttree

import (
	"context"
	"encoding/json"
	"io/fs"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/mounts"
)

// overlay puts a few made files over a tree.
type overlay struct {
	fs.FS
	made map[string]func() []byte
}

// liveFS lays over the host's own files what only programs and system calls tell. Each is asked once, when its file is
// read.
func liveFS(ctx context.Context, host fs.FS) fs.FS {
	return overlay{host, map[string]func() []byte{
		VersionsPath:    sync.OnceValue(func() []byte { return encode(askVersions(ctx)) }),
		FileSystemsPath: sync.OnceValue(func() []byte { return encode(measure(host)) }),
	}}
}

func encode(v any) []byte {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err) // only types that JSON cannot hold do this
	}
	return append(b, '\n')
}

func (o overlay) Open(name string) (fs.File, error) {
	if made, ok := o.made[name]; ok {
		return (&node{name: name[strings.LastIndexByte(name, '/')+1:], mode: 0o444, data: made()}).open(), nil
	}
	return o.FS.Open(name)
}

func (o overlay) Stat(name string) (fs.FileInfo, error) {
	if _, ok := o.made[name]; ok {
		f, err := o.Open(name)
		if err != nil {
			return nil, err
		}
		return f.Stat()
	}
	return fs.Stat(o.FS, name)
}

func (o overlay) ReadLink(name string) (string, error)   { return fs.ReadLink(o.FS, name) }
func (o overlay) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(o.FS, name) }

// Where distributions put the programs, and how they print their version.
var (
	qemuPaths    = []string{"/usr/bin/" + qemuName(), "/usr/libexec/qemu-kvm", "/usr/bin/qemu-kvm"}
	libvirtPaths = []string{"/usr/sbin/libvirtd", "/usr/sbin/virtqemud"}
	qemuSays     = lazyregexp.New(`(?:QEMU|qemu).* version (\d+(?:\.\d+)+)`)
	libvirtSays  = lazyregexp.New(`\(libvirt\) (\d+(?:\.\d+)+)`)
)

func qemuName() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return "qemu-system-" + arch
}

func askVersions(ctx context.Context) Versions {
	return Versions{QEMU: askVersion(ctx, qemuPaths, qemuSays), Libvirt: askVersion(ctx, libvirtPaths, libvirtSays)}
}

// askTime is long for a program that prints a line, also on a host that is busy: one without an answer counts as not
// there, and rules about hosts with VMs find nothing then.
const askTime = 20 * time.Second

// askVersion asks the first of these programs that answers.
func askVersion(ctx context.Context, programs []string, says *lazyregexp.Regexp) string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for _, program := range programs {
		cmd := exec.CommandContext(ctx, program, "--version")
		cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, "/", time.Second
		out, err := cmd.Output()
		if m := says.FindSubmatch(out); err == nil && m != nil {
			return string(m[1])
		}
	}
	return ""
}

// localTypes are file systems that answer at once: a dead file server would keep us waiting for ever.
var localTypes = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "vfat", "tmpfs", "overlay",
	"hugetlbfs"}

// answers reports whether a mount can be looked at by its name: it is local, and so is what that name leads to, and
// what it leads through.
func answers(all []mounts.Mount, m mounts.Mount) bool {
	over, _ := mounts.Over(all, m.Point)
	waits := func(o mounts.Mount) bool {
		return mounts.Below(m.Point, o.Point) && (o.Network() || o.Type == "autofs" || strings.HasPrefix(o.Type, "fuse"))
	}
	return slices.Contains(localTypes, m.Type) && slices.Contains(localTypes, over.Type) &&
		!slices.ContainsFunc(all, waits)
}

// measure asks for the size of each local file system. Where several are mounted over each other, the last counts.
func measure(host fs.FS) []FileSystem {
	text, _ := NewFiles(host).Large("proc/self/mountinfo")
	all, _ := mounts.All(strings.NewReader(text))
	var out []FileSystem
	for _, m := range all {
		if !answers(all, m) {
			continue
		}
		f := FileSystem{Path: m.Point}
		var s unix.Statfs_t
		if err := unix.Statfs(f.Path, &s); err != nil || s.Bsize <= 0 {
			continue
		}
		f.Size, f.Free = s.Blocks*uint64(s.Bsize), s.Bavail*uint64(s.Bsize)
		out = append(out, f)
	}
	return out
}
