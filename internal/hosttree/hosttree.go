// Package hosttree gives a host as a tree of files rooted like "/": the live one, a directory, or a recorded archive;
// and it reads the small files in it. It also makes the recording. It never writes to the host.
package hosttree

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/grange-project/grange/internal/farm"
)

// Tree is one host's files. Links in them never lead out of the tree.
type Tree struct {
	fs.FS
	Name  string // "this host", or the path it was read from
	Live  bool
	close func() error
}

// Close frees what the tree holds.
func (t *Tree) Close() error {
	if t.close == nil {
		return nil
	}
	return t.close()
}

// Stat asks without opening: to open a pipe would wait for ever.
func (t *Tree) Stat(name string) (fs.FileInfo, error) { return fs.Stat(t.FS, name) }

// Lstat does not follow the last link.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(t.FS, name) }

// ReadLink is where a link leads.
func (t *Tree) ReadLink(name string) (string, error) { return fs.ReadLink(t.FS, name) }

// Live is this host. The programs that only VersionsPath needs are asked when that is read, once, and not after ctx has
// ended.
func Live(ctx context.Context) (*Tree, error) {
	return &Tree{FS: liveFS(ctx, os.DirFS("/")), Name: "this host", Live: true}, nil
}

// Open reads a recorded host: a directory, a tar archive (plain, or compressed by gzip, bzip2 or zstd), a .txtar file,
// or "-" for an archive on standard input. The host may be up to three directories down in it. An archive that is
// damaged, too large, or holds no host, is a *farm.Error with farm.CodeBadRecording.
func Open(name string) (*Tree, error) {
	if name == "-" {
		return openArchive("standard input", os.Stdin)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, bad(name, err, "name a directory or an archive that `grange host record` made", "cannot be read")
	}
	if info.IsDir() {
		return openDir(name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, bad(name, err, "", "cannot be read")
	}
	defer file.Close()
	return openArchive(name, file)
}

func openDir(name string) (*Tree, error) {
	root, err := os.OpenRoot(name) // which keeps links from leading out
	if err != nil {
		return nil, bad(name, err, "", "cannot be read")
	}
	host, err := findHost(name, root.FS())
	if err != nil {
		root.Close()
		return nil, err
	}
	if host != "." {
		outer := root
		defer outer.Close()
		if root, err = outer.OpenRoot(host); err != nil {
			return nil, bad(name, err, "", "cannot be read")
		}
	}
	return &Tree{FS: root.FS(), Name: name, close: root.Close}, nil
}

// Bounds of the search for the host in a tree.
const (
	maxAbove = 3    // directories around it
	maxLook  = 1000 // entries of those
)

// findHost is the directory that has /proc or /sys in it.
func findHost(name string, fsys fs.FS) (string, error) {
	for level, depth := []string{"."}, 0; depth <= maxAbove; depth++ {
		var hosts, next []string
		for _, dir := range level {
			if isDir(fsys, path.Join(dir, "sys")) || isDir(fsys, path.Join(dir, "proc")) {
				hosts = append(hosts, dir)
			}
			entries, err := fs.ReadDir(fsys, dir)
			if err != nil {
				continue
			}
			for _, e := range entries[:min(len(entries), maxLook)] {
				if e.IsDir() && len(next) < maxLook {
					next = append(next, path.Join(dir, e.Name()))
				}
			}
		}
		switch len(hosts) {
		case 0:
			level = next
		case 1:
			return hosts[0], nil
		default:
			return "", bad(name, nil, fmt.Sprintf("name one of them, for example %s", path.Join(name, hosts[0])),
				"holds %d hosts", len(hosts))
		}
	}
	return "", bad(name, nil, "record a host with `grange host record`", "holds no host: it has neither proc nor sys")
}

func isDir(fsys fs.FS, name string) bool {
	info, err := fs.Stat(fsys, name)
	return err == nil && info.IsDir()
}

func bad(name string, err error, hint, format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRecording,
		Message: name + " " + fmt.Sprintf(format, args...), Hint: hint, Err: err}
}
