package apply

import (
	"bytes"
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

	"github.com/grange-project/grange/internal/farm"
)

// Bounds on what is read of a tree, so that a hostile one is an error and not an allocation.
const (
	maxFile    = 1 << 20
	maxEntries = 256 << 10 // of one directory: /proc has one for each process
	maxLinks   = 8
)

// File is one entry of a tree, as it was found or shall be. A nil *File is one that is not there.
type File struct {
	Mode     fs.FileMode // with the type: plain, directory or link
	UID, GID int
	Data     []byte `json:",omitempty"`
	Link     string `json:",omitempty"`
}

func (f *File) equal(g *File) bool {
	if f == nil || g == nil {
		return f == g
	}
	return f.Mode == g.Mode && f.UID == g.UID && f.GID == g.GID && f.Link == g.Link && bytes.Equal(f.Data, g.Data)
}

func (f *File) text() string {
	if f == nil {
		return ""
	}
	return string(f.Data)
}

// readFile reads an entry without following a link in its last element.
func readFile(root *os.Root, name string) (*File, error) {
	info, err := root.Lstat(name)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at /%s: %w", name, err)
	}
	f := &File{Mode: info.Mode() & (fs.ModeType | fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID, f.GID = int(s.Uid), int(s.Gid)
	}
	switch {
	case info.Mode().IsRegular():
		f.Data, err = readBytes(root, name)
	case info.Mode()&fs.ModeSymlink != 0:
		f.Link, err = root.Readlink(name)
	case !info.IsDir():
		err = unsafePath(name, "is not a plain file")
	}
	return f, err
}

// missing reports that nothing has this name: also below something that is no directory.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// readBytes reads a plain file of at most maxFile bytes; a pipe could be waited on for ever. Files of /sys and /proc
// say nothing of their size.
func readBytes(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /%s: %w", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, unsafePath(name, "is not a plain file"))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read /%s: %w", name, err)
	}
	if len(b) > maxFile {
		return nil, unsafePath(name, fmt.Sprintf("is longer than %s", farm.Bytes(maxFile)))
	}
	return b, nil
}

func unsafePath(name, why string) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeUnsafePath, Message: "/" + name + " " + why,
		Hint: "put a plain file in its place; nothing was changed"}
}

// resolve follows links in the last element of a name, as a program on the host would: an absolute one begins at the
// root of the tree. A link that climbs out of the tree is an error.
func resolve(root *os.Root, name string) (string, error) {
	for range maxLinks {
		info, err := root.Lstat(name)
		if missing(err) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return name, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			return "", fmt.Errorf("look at /%s: %w", name, err)
		}
		if err != nil {
			return "", &farm.Error{Kind: farm.Invalid, Code: CodeUnsafePath,
				Message: "/" + name + " cannot be reached inside of the tree",
				Hint:    "a directory above it is a link that leads out", Err: err}
		}
		link, err := root.Readlink(name)
		if err != nil {
			return "", fmt.Errorf("read link /%s: %w", name, err)
		}
		next := strings.TrimPrefix(path.Clean(link), "/")
		if !path.IsAbs(link) {
			next = path.Join(path.Dir(name), link)
		}
		if !fs.ValidPath(next) || next == "." {
			return "", unsafePath(name, fmt.Sprintf("links to %s, outside of the tree", link))
		}
		name = next
	}
	return "", unsafePath(name, "is a chain of links without end")
}

// scratchName is the file that becomes name. It is the same each time, so that an undo finds what a killed write left
// behind, and ends in a way that no reader of .conf and .cfg directories takes.
func scratchName(name string) string {
	return path.Join(path.Dir(name), "."+path.Base(name)+".grange-tuning.tmp")
}

// putFile makes name what f says, or takes it away: whole or not at all, and on disk when it returns.
func putFile(root *os.Root, name string, f *File) error {
	if err := putEntry(root, name, f); err != nil {
		return fmt.Errorf("write /%s: %w", name, err)
	}
	return nil
}

func putEntry(root *os.Root, name string, f *File) error {
	if f != nil && f.Mode.IsRegular() {
		return replaceFile(root, name, f)
	}
	now, err := root.Lstat(name)
	if err != nil && !missing(err) {
		return err
	}
	present := err == nil
	if present && f != nil && f.Mode.IsDir() && now.IsDir() {
		return own(root, name, f)
	}
	if present {
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	switch {
	case f == nil && !present:
		return nil
	case f == nil:
	case f.Mode.IsDir():
		if err := root.Mkdir(name, f.Mode.Perm()); err != nil {
			return err
		}
		if err := own(root, name, f); err != nil {
			return err
		}
	default:
		if err := root.Symlink(f.Link, name); err != nil {
			return err
		}
		if err := root.Lchown(name, f.UID, f.GID); err != nil {
			return err
		}
	}
	return syncDir(root, path.Dir(name))
}

func own(root *os.Root, name string, f *File) error {
	if err := root.Chown(name, f.UID, f.GID); err != nil {
		return err
	}
	return root.Chmod(name, f.Mode)
}

func replaceFile(root *os.Root, name string, f *File) error {
	scratch := scratchName(name)
	if err := root.Remove(scratch); err != nil && !missing(err) {
		return err
	}
	w, err := root.OpenFile(scratch, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer w.Close()
	err = fill(root, w, name, f)
	if err == nil {
		err = root.Rename(scratch, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(scratch))
	}
	return syncDir(root, path.Dir(name))
}

func fill(root *os.Root, w *os.File, name string, f *File) error {
	if _, err := w.Write(f.Data); err != nil {
		return err
	}
	if err := w.Chown(f.UID, f.GID); err != nil {
		return err
	}
	if err := w.Chmod(f.Mode); err != nil {
		return err
	}
	copyAttributes(root, w, name)
	return w.Sync()
}

// copyAttributes gives w the security label and access lists of the file it will replace. A file system that has none,
// or keeps them from us, is no reason to leave the host untuned.
func copyAttributes(root *os.Root, w *os.File, name string) {
	r, err := root.Open(name)
	if err != nil {
		return
	}
	defer r.Close()
	names := make([]byte, 4096)
	n, err := unix.Flistxattr(int(r.Fd()), names)
	if err != nil {
		return
	}
	value := make([]byte, 64<<10)
	for attribute := range bytes.SplitSeq(names[:n], []byte{0}) {
		if len(attribute) == 0 {
			continue
		}
		if size, err := unix.Fgetxattr(int(r.Fd()), string(attribute), value); err == nil {
			unix.Fsetxattr(int(w.Fd()), string(attribute), value[:size], 0)
		}
	}
}

func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// missingParents lists the directories above name that are not there, the outermost first.
func missingParents(root *os.Root, name string) ([]string, error) {
	var out []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := root.Stat(dir)
		if err == nil && !info.IsDir() {
			return nil, unsafePath(dir, "is not a directory")
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look at /%s: %w", dir, err)
		}
		out = append([]string{dir}, out...)
	}
	return out, nil
}

// entries lists the names in a directory in order; one that is not there is empty.
func entries(root *os.Root, dir string) ([]string, error) {
	d, err := root.Open(dir)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open /%s: %w", dir, err)
	}
	defer d.Close()
	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) && !missing(err) {
		return nil, fmt.Errorf("list /%s: %w", dir, err)
	}
	if len(names) > maxEntries {
		return nil, unsafePath(dir, fmt.Sprintf("has more than %d entries", maxEntries))
	}
	slices.Sort(names)
	return names, nil
}
