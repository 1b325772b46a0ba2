// Package hostfacts reads what an audit needs to know of a host. It takes any file system rooted like "/", so a recorded host
// reads as well as the live one. It never writes and never runs a program.
package hostfacts

import (
	"io/fs"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/topology"
)

// Read reads a host.
func Read(fsys fs.FS) (farm.Host, error) {
	t, err := topology.Read(fsys)
	return farm.Host{Topology: t}, err
}
