// Package rootpath resolves paths that ordinary users name and root opens. Each directory on the way must be such that
// no user can put a link or another file there.
package rootpath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/mounts"
)

const (
	mostLinks = 40   // symbolic links on the way to a file, as Linux counts
	mostParts = 4096 // of names that are looked up, those of links included
)

// ErrUnsafe is wrapped by the errors of paths that users could change, and of paths that lead out of their directory.
var ErrUnsafe = errors.New("the path is not safe")

// Resolver resolves the paths of a host.
type Resolver struct {
	Files fs.FS // "/" of the host, which can read links
	// Sealed reports whether a path is on a file system that is read-only for everybody.
	Sealed func(path string) bool
	// Users reports whether a path is on a file system that a user mounted, and that says what it likes of owners.
	Users func(path string) bool
}

// Host returns the resolver of this host.
func Host() Resolver {
	table := func(judge func(mountinfo io.Reader, path string) bool, otherwise bool) func(path string) bool {
		return func(path string) bool {
			f, err := os.Open("/proc/self/mountinfo")
			if err != nil {
				return otherwise
			}
			defer f.Close()
			return judge(f, path)
		}
	}
	return Resolver{os.DirFS("/"), table(sealedIn, false), table(usersIn, true)}
}

// sealedIn reads which file systems are read-only by themselves. NFS and its like are not: who writes there does so on
// other hosts.
func sealedIn(mountinfo io.Reader, path string) bool {
	over, options, err := mounts.Options(mountinfo, path)
	return err == nil && slices.Contains(options, "ro") && publishedOnly(over.Type) && !byUser(over, options)
}

// usersIn reads which file systems are programs of users. fusermount lets a user mount one on a directory of that user,
// and root looks into it where the user allowed others (user_allow_other in fuse.conf).
func usersIn(mountinfo io.Reader, path string) bool {
	over, options, err := mounts.Options(mountinfo, path)
	return err != nil || byUser(over, options)
}

func byUser(m mounts.Mount, options []string) bool {
	return strings.HasPrefix(m.Type, "fuse") && slices.ContainsFunc(options, func(option string) bool {
		return strings.HasPrefix(option, "user_id=") && option != "user_id=0"
	})
}

// publishedOnly reports whether files of a read-only file system of a type come from its publisher alone.
func publishedOnly(kind string) bool {
	switch kind {
	case "squashfs", "erofs", "iso9660", "fuse", "fuse.cvmfs2":
		return true
	}
	return false
}

// Resolve returns the path to which name leads, without symbolic links. Every directory that is passed, and what is
// found, must be root's alone to write, or on a file system that is sealed. below is a directory above name out of
// which links may not lead; "" is "/". Errors: ErrUnsafe, those of the files.
func (r Resolver) Resolve(name, below string) (string, error) {
	w := walk{Resolver: r, name: name, below: "/", top: "/", at: "/"}
	rest, ok := name, true
	if below != "" {
		if rest, ok = strings.CutPrefix(name, strings.TrimSuffix(below, "/")+"/"); !ok {
			return "", fmt.Errorf("%w: %s is not below %s", ErrUnsafe, name, below)
		}
		top, err := r.Resolve(below, "")
		if err != nil {
			return "", err
		}
		w.below, w.top, w.at = below, top, top
	}
	return w.run(rest)
}

// walk is one way from a directory to where a name leads.
type walk struct {
	Resolver
	name, below string
	top         string // where below leads
	at          string
	links       int
}

func (w *walk) run(name string) (string, error) {
	rest := strings.Split(name, "/")
	for n := 0; len(rest) > 0; n++ {
		if n == mostParts {
			return "", fmt.Errorf("%w: %s has too many parts", ErrUnsafe, w.name)
		}
		part := rest[0]
		rest = rest[1:]
		next := path.Join(w.at, part)
		if next != w.top && !mounts.Below(next, w.top) && w.top != "/" {
			return "", w.leaves()
		}
		if next == w.at || part == ".." {
			w.at = next
			continue
		}
		target, err := w.enter(next)
		if err != nil {
			return "", err
		}
		if target != "" {
			rest = append(strings.Split(target, "/"), rest...)
		}
	}
	info, err := w.lstat(w.at)
	if err == nil && !w.trusted(info) {
		err = writable(w.at)
	}
	return w.at, err
}

// enter looks at an entry of the directory, and goes there; of a symbolic link it returns the target.
func (w *walk) enter(next string) (target string, err error) {
	dir, err := w.lstat(w.at)
	if err != nil {
		return "", err
	}
	found, err := w.lstat(next)
	if err != nil {
		return "", err
	}
	if !w.trusted(dir) && (!keeps(dir, found) || w.Users(w.at) || w.Users(next)) {
		return "", writable(w.at)
	}
	if found.Mode()&fs.ModeSymlink == 0 {
		w.at = next
		return "", nil
	}
	if target, err = fs.ReadLink(w.Files, relative(next)); err != nil {
		return "", err
	}
	if w.links++; w.links > mostLinks {
		return "", fmt.Errorf("%w: too many symbolic links on the way to %s", ErrUnsafe, w.name)
	}
	if strings.HasPrefix(target, "/") {
		w.at = w.top
		inside, ok := strings.CutPrefix(target, strings.TrimSuffix(w.below, "/")+"/")
		if !ok {
			return "", w.leaves()
		}
		return inside, nil
	}
	return target, nil
}

// trusted reports whether root alone can change what the walk has come to, of which info is.
func (w *walk) trusted(info fs.FileInfo) bool {
	return rootsAlone(info) && !w.Users(w.at) || w.Sealed(w.at)
}

func (w *walk) leaves() error {
	return fmt.Errorf("%w: a symbolic link leads out of %s", ErrUnsafe, w.below)
}

func writable(dir string) error {
	return fmt.Errorf("%w: others than root may write to %s", ErrUnsafe, dir)
}

func (r Resolver) lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.Files, relative(name)) }

func relative(name string) string {
	if name = strings.Trim(name, "/"); name == "" {
		return "."
	}
	return name
}

// rootsAlone reports whether a file belongs to root, and nobody else may write to it.
func rootsAlone(info fs.FileInfo) bool {
	return info.Mode().Perm()&0o022 == 0 && ofRoot(info)
}

// keeps reports whether a directory in which all may write, as /tmp, keeps others from replacing an entry of root's. A
// link there may be another name of a link elsewhere, and so may a file.
func keeps(dir, entry fs.FileInfo) bool {
	return dir.Mode()&fs.ModeSticky != 0 && ofRoot(dir) && entry.IsDir() && ofRoot(entry)
}

func ofRoot(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && owner.Uid == 0
}

// Open opens a path that Resolve returned: no symbolic link may have come since. Kernels before 5.6 look at its last
// part alone.
func Open(name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, name,
			&unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_NO_SYMLINKS})
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOSYS):
			return os.OpenFile(name, flags|unix.O_NOFOLLOW, 0)
		case err != nil:
			return nil, &fs.PathError{Op: "openat2", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}
