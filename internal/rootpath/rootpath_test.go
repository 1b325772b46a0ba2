package rootpath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

// host is a tree in which a line is a path, and its mode, owner and target: "srv/pull 0755 0", "srv/pull/l -> /root 0".
func host(t *testing.T, lines string) Resolver {
	t.Helper()
	files := fstest.MapFS{".": {Mode: fs.ModeDir | 0o755, Sys: &syscall.Stat_t{}}}
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		file := &fstest.MapFile{Mode: fs.ModeDir | 0o755, Sys: &syscall.Stat_t{}}
		for _, word := range f[1:] {
			switch {
			case word == "user":
				file.Sys = &syscall.Stat_t{Uid: 1000}
			case word == "file":
				file.Mode &^= fs.ModeDir
			case word == "all":
				file.Mode |= 0o022
			case word == "sticky":
				file.Mode |= 0o022 | fs.ModeSticky
			case strings.HasPrefix(word, "->"):
				file.Mode, file.Data = fs.ModeSymlink|0o777, []byte(word[2:])
			}
		}
		files[f[0]] = file
	}
	in := func(dir string) func(string) bool {
		return func(path string) bool { return strings.HasPrefix(path, dir) }
	}
	return Resolver{files, in("/cvmfs/unpacked"), in("/tmp/fuse")}
}

const tree = `srv
srv/pull
srv/pull/image
srv/pull/linked ->image
srv/pull/absolute ->/srv/pull/image
srv/pull/etc ->/root
srv/pull/up ->../../root
srv/pull/nowhere ->/root/nothing
srv/pull/back ->../pull/image
srv/pull/circle ->circle
srv/pull/users user
srv/pull/users/image
srv/pull/group all
srv/pull/group/image
srv/pull/a.sif file
srv/pull/mine.sif file user
srv/named ->pull/image
root
root/secret
home
home/user user
home/user/link ->../../root/secret
tmp sticky
tmp/image
tmp/link ->image
tmp/mine user
tmp/hard.sif file
tmp/fuse
tmp/fuse/image
tmp/fuse/sticky sticky
tmp/fuse/sticky/image
cvmfs
cvmfs/unpacked user
cvmfs/unpacked/name ->.flat/a
cvmfs/unpacked/.flat user
cvmfs/unpacked/.flat/a user
cvmfs/unpacked/.flat/a/etc ->/etc
cvmfs/unpacked/.flat/a/root ->../../../../root
`

func TestResolve(t *testing.T) {
	r := host(t, tree)
	for _, c := range []struct{ name, below, want string }{
		{"/srv/pull/image", "/srv/pull", "/srv/pull/image"},
		{"/srv/pull/image", "/srv/pull/", "/srv/pull/image"},
		{"/srv/pull/image", "", "/srv/pull/image"},
		{"/srv/pull/linked", "/srv/pull", "/srv/pull/image"},
		{"/srv/pull/absolute", "/srv/pull", "/srv/pull/image"},
		{"/srv/pull/a.sif", "/srv/pull", "/srv/pull/a.sif"},
		{"/srv/named", "", "/srv/pull/image"},
		{"/srv/pull/etc", "", "/root"}, // a link of root's, which the site named
		{"/srv/pull/etc", "/srv/pull", ""},
		{"/srv/pull/up", "/srv/pull", ""},
		{"/srv/pull/nowhere", "/srv/pull", ""},
		{"/srv/pull/back", "/srv/pull", ""},
		{"/srv/pull/circle", "/srv/pull", ""},
		{"/srv/pull/users/image", "/srv/pull", ""},
		{"/srv/pull/users", "/srv/pull", ""},
		{"/srv/pull/group/image", "/srv/pull", ""},
		{"/srv/pull/mine.sif", "/srv/pull", ""},
		{"/srv/other", "/srv/pull", ""},
		{"/home/user/link", "", ""},
		{"/home/user/link", "/home/user", ""},
		{"/tmp/image", "/tmp", ""}, // anybody may make what the directory does not have yet
		{"/tmp/image", "", "/tmp/image"},
		{"/tmp/link", "", ""},
		{"/tmp/mine", "", ""},
		{"/tmp/hard.sif", "", ""},
		{"/tmp/fuse", "", ""},
		{"/tmp/fuse/image", "", ""},
		{"/tmp/fuse/sticky/image", "", ""},
		{"/cvmfs/unpacked/name", "/cvmfs/unpacked", "/cvmfs/unpacked/.flat/a"},
		{"/cvmfs/unpacked/.flat/a/etc", "/cvmfs/unpacked", ""},
		{"/cvmfs/unpacked/.flat/a/root", "/cvmfs/unpacked", ""},
	} {
		got, err := r.Resolve(c.name, c.below)
		if c.want == "" && !errors.Is(err, ErrUnsafe) || c.want != "" && (err != nil || got != c.want) {
			t.Errorf("%s below %q: %q, %v", c.name, c.below, got, err)
		}
	}
	if _, err := r.Resolve("/srv/pull/nothing", "/srv/pull"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestOpen: a path is opened as it is, without a link at its end or on the way.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(real, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(real, "link")); err != nil {
		t.Fatal(err)
	}
	f, err := Open(filepath.Join(real, "a"), unix.O_DIRECTORY)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, name := range []string{"link", "link/."} {
		if f, err := Open(real+"/"+name, unix.O_DIRECTORY); err == nil {
			t.Error(name)
			f.Close()
		}
	}
}

// TestSealed: a file system counts that is read-only by itself, and that others do not write to elsewhere.
func TestSealed(t *testing.T) {
	const table = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 8:1 /home /home ro,relatime - ext4 /dev/sda1 rw
31 22 0:40 / /cvmfs/unpacked.cern.ch ro,nosuid,nodev,relatime - fuse cvmfs2 ro,user_id=0,group_id=0
32 22 0:41 / /export ro,relatime - nfs4 server:/export ro,vers=4.2
33 22 7:0 / /images ro,relatime - squashfs /dev/loop0 ro,errors=continue
34 22 0:42 / /mnt ro,relatime - fuse.sshfs user@host: ro,user_id=1000
35 22 0:43 / /tmp/ro ro,nosuid,nodev - fuse cvmfs2 ro,user_id=1000,group_id=1000,allow_other
36 22 0:44 / /tmp/rw rw,nosuid,nodev - fuse.x x rw,user_id=1000,group_id=1000,allow_other
37 22 8:2 / /ntfs rw - fuseblk /dev/sda2 rw,user_id=0,group_id=0,allow_other
`
	for path, want := range map[string]bool{"/": false, "/home/a": false, "/cvmfs": false,
		"/cvmfs/unpacked.cern.ch": true, "/cvmfs/unpacked.cern.ch/a": true, "/export/a": false, "/images/a": true,
		"/mnt/a": false, "/tmp/ro": false, "/tmp/rw/a": false} {
		if got := sealedIn(strings.NewReader(table), path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	for path, want := range map[string]bool{"/": false, "/cvmfs/unpacked.cern.ch/a": false, "/ntfs/a": false,
		"/tmp": false, "/mnt/a": true, "/tmp/ro": true, "/tmp/rw/a": true} {
		if got := usersIn(strings.NewReader(table), path); got != want {
			t.Errorf("a file system of a user at %s: %v", path, got)
		}
	}
}
