package catalogue

import (
	"context"
	"strings"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

// fleetPrefix begins a source that is an image of the fleet's server: fleet:sha256: and its digest.
const fleetPrefix = "fleet:"

// fromFleet brings an image's file from other hosts and the server, and imports it.
func (c *Catalogue) fromFleet(ctx context.Context, name, source string, progress func(vmimage.Progress)) (vmimage.Image,
	error) {
	digest, err := chunk.ParseSum(strings.TrimPrefix(source, fleetPrefix))
	if err != nil {
		return vmimage.Image{}, invalid("%s: %v", source, err)
	}
	if c.Transfers == nil {
		return vmimage.Image{}, invalid("%s is an image of a fleet, and this agent knows of none", source)
	}
	sum := strings.TrimPrefix(digest.String(), "sha256:")
	f, err := c.Transfers.Fetch(ctx, sum, func(done, total int64, note string) {
		progress(vmimage.Progress{Step: "download", Done: farm.Bytes(done), Total: farm.Bytes(total), Note: note})
	})
	if err != nil {
		return vmimage.Image{}, err
	}
	defer f.Close()
	i, err := c.Images.Import(ctx, name, f.Name(), func(done, total farm.Bytes) {
		progress(vmimage.Progress{Step: "import", Done: done, Total: total})
	})
	if err != nil {
		return i, err
	}
	return i, c.Transfers.Forget(sum)
}
