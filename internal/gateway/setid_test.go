package gateway

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// TestSetID: no way to make a file leaves one on the host that runs there with its owner's rights, unless the bind
// allows it.
func TestSetID(t *testing.T) {
	const mode = 0o6755
	ways := map[string]func(k kernel){
		"MKNOD": func(k kernel) {
			k.raw.Mknod(nil, &fuse.MknodIn{InHeader: k.head(1), Mode: syscall.S_IFREG | mode}, "f", &fuse.EntryOut{})
		},
		"CREATE": func(k kernel) {
			k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(1), Flags: syscall.O_WRONLY, Mode: mode}, "f",
				&fuse.CreateOut{})
		},
		"SETATTR": func(k kernel) {
			k.chmod(k.create("f").NodeId,
				syscall.S_IFREG|mode, 0)
		},
		"SETATTR that calls a file a directory": func(k kernel) {
			k.chmod(k.create("f").NodeId,
				syscall.S_IFDIR|mode, 0)
		},
		"SETATTR of an open file": func(k kernel) {
			made := k.create("f")
			k.chmod(made.NodeId, syscall.S_IFREG|mode, made.Fh)
		},
	}
	for name, way := range ways {
		for _, allowed := range []bool{false, true} {
			dir := t.TempDir()
			way(kernel{testFSWith(t, dir, Options{SetID: allowed}, false), me()})
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(dir, "f"), &st); err != nil {
				t.Fatal(name, err)
			}
			// to the guest's user, which takes the bits
			given := os.Getuid() == 0 && (name == "MKNOD" || name == "CREATE")
			if got := st.Mode&setID != 0; got != (allowed && !given) {
				t.Errorf("%s, allowed %v: mode %o", name, allowed, st.Mode)
			}
			if st.Mode&0o100 == 0 {
				t.Errorf("%s: mode %o", name, st.Mode)
			}
		}
	}
}

func (k kernel) create(name string) (out fuse.CreateOut) {
	k.raw.Create(nil, &fuse.CreateIn{InHeader: k.head(1), Flags: syscall.O_RDWR, Mode: 0o755}, name, &out)
	return out
}

// chmod changes a mode by name, or by handle where there is one.
func (k kernel) chmod(node uint64, mode uint32, handle uint64) fuse.Status {
	in := &fuse.SetAttrIn{}
	in.InHeader, in.Valid, in.Mode, in.Fh = k.head(node), fuse.FATTR_MODE, mode, handle
	if handle != 0 {
		in.Valid |= fuse.FATTR_FH
	}
	return k.raw.SetAttr(nil, in, &fuse.AttrOut{})
}

// TestDirectoryKeepsGroupBit: it says whose the new files in a directory are, and gives nobody rights.
func TestDirectoryKeepsGroupBit(t *testing.T) {
	dir := t.TempDir()
	k := kernel{testFS(t, dir, false, false), me()}
	k.raw.Mkdir(nil, &fuse.MkdirIn{InHeader: k.head(1), Mode: 0o755}, "d", &fuse.EntryOut{})
	if s := k.chmod(k.lookup(1, "d"), syscall.S_IFDIR|0o2775, 0); !s.Ok() {
		t.Fatal(s)
	}
	if info, err := os.Stat(filepath.Join(dir, "d")); err != nil || info.Mode()&os.ModeSetgid == 0 {
		t.Error(info.Mode(), err)
	}
}

// TestPrivilegedAttributes: capabilities and labels are not a guest's to give.
func TestPrivilegedAttributes(t *testing.T) {
	dir := t.TempDir()
	k := kernel{testFS(t, dir, false, false), me()}
	f := k.create("f").NodeId
	none := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // CAP_NET_BIND_SERVICE
	for _, name := range []string{"security.capability", "security.selinux", "trusted.overlay.opaque"} {
		if s := k.raw.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: k.head(f)}, name, none); s != fuse.EPERM {
			t.Errorf("%s: %v", name, s)
		}
	}
	if os.Getuid() != 0 {
		return
	}
	k = kernel{testFSWith(t, dir, Options{SetID: true}, false), me()}
	if s := k.raw.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: k.head(k.lookup(1, "f"))}, "security.capability",
		none); !s.Ok() {
		t.Errorf("where it is allowed: %v", s)
	}
}

// TestRootsBind is what only root could do to the host.
func TestRootsBind(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes devices")
	}
	dir := t.TempDir()
	armed := filepath.Join(dir, "armed")
	for _, allowed := range []bool{false, true} {
		if err := os.WriteFile(armed, []byte("host's"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(armed, 0o4755); err != nil {
			t.Fatal(err)
		}
		k := kernel{testFSWith(t, dir, Options{SetID: allowed, Devices: allowed}, false), me()}
		if s := k.raw.Open(nil, &fuse.OpenIn{InHeader: k.head(k.lookup(1, "armed")), Flags: syscall.O_WRONLY},
			&fuse.OpenOut{}); !s.Ok() {
			t.Fatal(s)
		}
		if info, err := os.Stat(armed); err != nil || (info.Mode()&os.ModeSetuid != 0) != allowed {
			t.Errorf("allowed %v, a set-user-ID file that the guest writes: %v, %v", allowed, info.Mode(), err)
		}
		null := uint32(unix.Mkdev(1, 3))
		for _, kind := range []uint32{syscall.S_IFCHR, syscall.S_IFBLK} {
			s := k.raw.Mknod(nil, &fuse.MknodIn{InHeader: k.head(1), Mode: kind | 0o666, Rdev: null}, "device",
				&fuse.EntryOut{})
			if s.Ok() != allowed {
				t.Errorf("allowed %v: a device: %v", allowed, s)
			}
			os.Remove(filepath.Join(dir, "device"))
		}
		if err := unix.Mknod(filepath.Join(dir, "host"), unix.S_IFCHR|0o600, int(null)); err != nil {
			t.Fatal(err)
		}
		if s := k.chmod(k.lookup(1, "host"), syscall.S_IFCHR|0o666, 0); s.Ok() != allowed {
			t.Errorf("allowed %v: a device of the host for all: %v", allowed, s)
		}
		os.Remove(filepath.Join(dir, "host"))
	}
}
