package hosttree

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Trace hands on the files of a host and remembers what was read of each. Whatever reads a host through a Trace thereby
// says what a recording of it must hold, and nothing else gets in.
type Trace struct {
	fsys  fs.FS
	mu    sync.Mutex
	files map[string][]byte // what was read, from the start
	links map[string]string
	dirs  map[string]bool // directories that were listed
}

// NewTrace traces what is read of a host.
func NewTrace(fsys fs.FS) *Trace {
	return &Trace{fsys: fsys, files: map[string][]byte{}, links: map[string]string{}, dirs: map[string]bool{}}
}

// Open opens a file, whose bytes are remembered as they are read.
func (t *Trace) Open(name string) (fs.File, error) {
	f, err := t.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if dir, ok := f.(fs.ReadDirFile); ok && info.IsDir() {
		t.dirs[name] = true
		return &tracedDir{ReadDirFile: dir, trace: t, name: name}, nil
	}
	return &tracedFile{File: f, trace: t, name: name}, nil
}

// Stat asks without opening. That a file is there is remembered, too.
func (t *Trace) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(t.fsys, name)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch _, known := t.files[name]; {
	case info.IsDir():
		t.dirs[name] = true
	case info.Mode().IsRegular() && !known:
		t.files[name] = nil
	}
	return info, nil
}

// Lstat does not follow the last link.
func (t *Trace) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(t.fsys, name) }

// ReadLink is where a link leads.
func (t *Trace) ReadLink(name string) (string, error) {
	target, err := fs.ReadLink(t.fsys, name)
	if err == nil {
		t.mu.Lock()
		t.links[name] = target
		t.mu.Unlock()
	}
	return target, err
}

type tracedFile struct {
	fs.File
	trace *Trace
	name  string
	read  []byte
	done  bool
}

func (f *tracedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.read = append(f.read, p[:n]...)
	return n, err
}

// Close keeps what was read. Of a file that is read twice the longer reading counts.
func (f *tracedFile) Close() error {
	f.trace.mu.Lock()
	defer f.trace.mu.Unlock()
	if old, ok := f.trace.files[f.name]; !f.done && (!ok || len(f.read) > len(old)) {
		f.trace.files[f.name] = f.read
	}
	f.done = true
	return f.File.Close()
}

type tracedDir struct {
	fs.ReadDirFile
	trace *Trace
	name  string
}

// ReadDir remembers what is in a directory where the name alone says something: a unit that is wanted, a disk. In /proc
// it would be the number of a process that is nobody's business.
func (d *tracedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDirFile.ReadDir(n)
	if strings.HasPrefix(d.name, "etc/") || strings.HasPrefix(d.name, "sys/") {
		for _, e := range entries {
			d.trace.saw(path.Join(d.name, e.Name()), e.Type())
		}
	}
	return entries, err
}

func (t *Trace) saw(name string, mode fs.FileMode) {
	link := mode&fs.ModeSymlink != 0
	if link && strings.HasPrefix(name, "sys/") { // most lead to directories: as such they need no more of the tree
		if _, err := t.Stat(name); err == nil {
			return
		}
	}
	if link {
		t.ReadLink(name)
	} else {
		t.Stat(name)
	}
}

// Recorded is one file or link of a recording.
type Recorded struct {
	Path string
	Data []byte
	Link string // where it leads; Data is empty then
	Dir  bool
}

// Entries are all that was read, in order of their paths. What lies below a link is a file by its own path; such a link
// is left out.
func (t *Trace) Entries() []Recorded {
	t.mu.Lock()
	defer t.mu.Unlock()
	above := map[string]bool{}
	for name := range t.files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			above[dir] = true
		}
	}
	var out []Recorded
	for name, data := range t.files {
		out = append(out, Recorded{Path: name, Data: data})
	}
	for name, target := range t.links {
		if _, file := t.files[name]; !file && !above[name] {
			out = append(out, Recorded{Path: name, Link: target})
		}
	}
	for name := range t.dirs {
		if _, link := t.links[name]; !link && !above[name] && name != "." {
			out = append(out, Recorded{Path: name, Dir: true})
		}
	}
	slices.SortFunc(out, func(a, b Recorded) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// WriteTar writes entries as a tar archive. The same entries and time give the same bytes.
func WriteTar(w io.Writer, entries []Recorded, now time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.Path, Mode: 0o444, ModTime: now.Truncate(time.Second), Format: tar.FormatPAX,
			Typeflag: tar.TypeReg, Size: int64(len(e.Data))}
		switch {
		case e.Dir:
			h.Typeflag, h.Mode, h.Name, h.Size = tar.TypeDir, 0o755, e.Path+"/", 0
		case e.Link != "":
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.Link, 0
		}
		if err := archive.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", e.Path, err)
		}
		if h.Size > 0 {
			if _, err := archive.Write(e.Data); err != nil {
				return fmt.Errorf("write %s: %w", e.Path, err)
			}
		}
	}
	return archive.Close()
}
