package wire

import (
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// Catalogue is the catalogue of images as hosts are told it.
func Catalogue(revision int64, all []farm.FleetImage, names []farm.ImageName) fleet.Catalogue {
	c := fleet.Catalogue{Revision: revision, Images: []fleet.CatalogueImage{}, Names: map[string]string{}}
	for _, i := range all {
		c.Images = append(c.Images, fleet.CatalogueImage{Digest: i.Digest, State: string(i.State),
			Successor: i.Successor, Reason: i.Reason, Projects: i.Projects, MinMemory: uint64(i.MinMemory),
			Removed: i.Removed, Servers: i.Servers, Manifest: i.Manifest})
	}
	for _, n := range names {
		c.Names[n.Name] = n.Digest
	}
	return c
}
