package hosttree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// maxNodes bounds the files, links and directories of an archive. A recording of a host with 512 CPUs has some 40,000.
const maxNodes = 500_000

// maxLinks is how many links one path may go through, as in Linux.
const maxLinks = 40

// memory is a tree of files in memory. Links are followed within it, as after chroot: the parent of the root is the
// root.
type memory struct {
	root  *node
	nodes int
}

type node struct {
	name     string
	mode     fs.FileMode
	data     []byte // of a file, or where a link leads
	children map[string]*node
}

func newMemory() *memory { return &memory{root: directory(".")} }

func directory(name string) *node {
	return &node{name: name, mode: fs.ModeDir | 0o755, children: map[string]*node{}}
}

// add puts a file or link at a path, and the directories above it. What was there goes, as in tar. No link is followed.
func (m *memory) add(name string, mode fs.FileMode, data []byte) error {
	dir, base := path.Split(name)
	at, err := m.mkdir(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return err
	}
	if old := at.children[base]; old == nil {
		m.nodes++
	} else if old.mode.IsDir() {
		return fmt.Errorf("%s is a directory and a file", name)
	}
	at.children[base] = &node{name: base, mode: mode, data: data}
	return m.check()
}

func (m *memory) mkdir(name string) (*node, error) {
	at := m.root
	if name == "" || name == "." {
		return at, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		next := at.children[part]
		if next == nil {
			next = directory(part)
			at.children[part] = next
			m.nodes++
		}
		if !next.mode.IsDir() {
			return nil, fmt.Errorf("%s is a file and a directory", name)
		}
		at = next
	}
	return at, m.check()
}

func (m *memory) check() error {
	if m.nodes > maxNodes {
		return fmt.Errorf("has more than %d files and directories", maxNodes)
	}
	return nil
}

// sub is the tree below a directory.
func (m *memory) sub(name string) (*memory, error) {
	n, err := m.find("open", name, true)
	return &memory{root: n}, err
}

func (m *memory) find(op, name string, followLast bool) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	above, left, links := []*node{m.root}, strings.Split(name, "/"), 0
	for len(left) > 0 {
		part := left[0]
		left = left[1:]
		at := above[len(above)-1]
		switch part {
		case "", ".":
			continue
		case "..":
			above = above[:max(len(above)-1, 1)]
			continue
		}
		next := at.children[part]
		if next == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
		if next.mode&fs.ModeSymlink == 0 || len(left) == 0 && !followLast {
			above = append(above, next)
			continue
		}
		if links++; links > maxLinks {
			return nil, &fs.PathError{Op: op, Path: name, Err: errors.New("too many links")}
		}
		target := string(next.data)
		if strings.HasPrefix(target, "/") {
			above = above[:1]
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return above[len(above)-1], nil
}

// Open opens a file or directory.
func (m *memory) Open(name string) (fs.File, error) {
	n, err := m.find("open", name, true)
	if err != nil {
		return nil, err
	}
	return n.open(), nil
}

// Stat follows links.
func (m *memory) Stat(name string) (fs.FileInfo, error) {
	n, err := m.find("stat", name, true)
	if err != nil {
		return nil, err
	}
	return nodeInfo{n}, nil
}

// Lstat does not follow the last link.
func (m *memory) Lstat(name string) (fs.FileInfo, error) {
	n, err := m.find("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return nodeInfo{n}, nil
}

// ReadLink is where a link leads.
func (m *memory) ReadLink(name string) (string, error) {
	n, err := m.find("readlink", name, false)
	if err == nil && n.mode&fs.ModeSymlink == 0 {
		err = &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	if err != nil {
		return "", err
	}
	return string(n.data), nil
}

func (n *node) open() fs.File {
	if n.mode.IsDir() {
		return &openDirectory{n: n, left: slices.Sorted(maps.Keys(n.children))}
	}
	return &openFile{n: n, Reader: bytes.NewReader(n.data)}
}

type openFile struct {
	n *node
	*bytes.Reader
}

func (f *openFile) Stat() (fs.FileInfo, error) { return nodeInfo{f.n}, nil }
func (f *openFile) Close() error               { return nil }

type openDirectory struct {
	n    *node
	left []string
}

func (d *openDirectory) Stat() (fs.FileInfo, error) { return nodeInfo{d.n}, nil }
func (d *openDirectory) Close() error               { return nil }
func (d *openDirectory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.n.name, Err: errors.New("is a directory")}
}

func (d *openDirectory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(d.left) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.left) {
		n = len(d.left)
	}
	out := make([]fs.DirEntry, 0, n)
	for _, name := range d.left[:n] {
		out = append(out, fs.FileInfoToDirEntry(nodeInfo{d.n.children[name]}))
	}
	d.left = d.left[n:]
	return out, nil
}

type nodeInfo struct{ n *node }

func (i nodeInfo) Name() string       { return i.n.name }
func (i nodeInfo) Size() int64        { return int64(len(i.n.data)) }
func (i nodeInfo) Mode() fs.FileMode  { return i.n.mode }
func (i nodeInfo) ModTime() time.Time { return time.Time{} }
func (i nodeInfo) IsDir() bool        { return i.n.mode.IsDir() }
func (i nodeInfo) Sys() any           { return nil }
