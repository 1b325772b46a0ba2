// Package hosttree gives a host as a tree of files rooted like "/": the live one, a directory, or a recorded archive. It also
// makes the recording. It never writes to the host.
package hosttree

import (
	"context"
	"io/fs"
	"os"
)

// Tree is one host's files.
type Tree struct {
	fs.FS
	Name  string // "this host", or the path it was read from
	Live  bool
	close func() error
}

// Close frees what an archive holds.
func (t *Tree) Close() error {
	if t.close == nil {
		return nil
	}
	return t.close()
}

// Live is this host.
func Live(_ context.Context) (*Tree, error) {
	return &Tree{FS: os.DirFS("/"), Name: "this host", Live: true}, nil
}

// Open reads a recorded host.
func Open(path string) (*Tree, error) {
	return &Tree{FS: os.DirFS(path), Name: path}, nil
}
