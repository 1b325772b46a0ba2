package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer"
	"github.com/grange-project/grange/internal/vmimage"
)

// newSource makes what gives the server's images to hosts.
func newSource(c config.Server, log *slog.Logger) (*transfer.Source, error) {
	images := sync.OnceValues(func() (*vmimage.Store, error) {
		return vmimage.Open(filepath.Join(filepath.Dir(c.Chunks()), "images"))
	})
	return transfer.NewSource(transfer.SourceOptions{Dir: c.Chunks(), Log: log,
		Rate: transfer.NewRate(int64(c.ImageRate)),
		Open: func(digest chunk.Sum) (*os.File, error) {
			store, err := images()
			if err != nil {
				return nil, err
			}
			return openImage(store, digest)
		}})
}

// openImage opens a file of an image by its digest.
func openImage(store *vmimage.Store, digest chunk.Sum) (*os.File, error) {
	images, err := vmimage.All(store)
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		for _, f := range i.Files {
			if "sha256:"+f.SHA256 == digest.String() {
				return os.Open(filepath.Join(i.Dir, f.Name))
			}
		}
	}
	return nil, &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoImage,
		Message: "this server has no image with the file " + digest.String(), Hint: "see `grange image list`"}
}
