package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/grange-project/grange/internal/farm"
)

// maxNote bounds what a site says of a file system, in bytes.
const maxNote = 200

// fileSystems are those that a server's configuration declares, by name.
func fileSystems(declared map[string]fileSystem) (all []farm.FileSystem, err error) {
	for name, f := range declared {
		if err := farm.CheckName("file system", name); err != nil {
			return nil, err
		}
		if f.Source == "" && f.Type == "" && f.MountPoint == "" {
			return nil, fmt.Errorf("file_systems.%s: without source, type and mount_point it is none", name)
		}
		if f.Clients < 0 {
			return nil, fmt.Errorf("file_systems.%s.clients: invalid number %d", name, f.Clients)
		}
		for _, text := range []string{f.Source, f.Type, f.MountPoint, f.Note} {
			if len(text) > maxNote || farm.Printable(text) != text {
				return nil, fmt.Errorf("file_systems.%s: %.40q is not one line of at most %d bytes", name, text,
					maxNote)
			}
		}
		all = append(all, farm.FileSystem{Name: name, Budget: f.Clients, Note: f.Note,
			Match: farm.FileSystemMatch{Source: f.Source, Type: f.Type, MountPoint: f.MountPoint}})
	}
	slices.SortFunc(all, func(a, b farm.FileSystem) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
