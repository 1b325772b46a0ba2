package daemon

import (
	"encoding/hex"
	"log/slog"
	"os"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/transfer"
)

// newSource makes what gives the server's images to hosts. open opens a file of an image by its SHA-256, in hex.
func newSource(c config.Server, log *slog.Logger, open func(sum string) (*os.File, error)) (*transfer.Source, error) {
	return transfer.NewSource(transfer.SourceOptions{Dir: c.Chunks(), Log: log,
		Rate: transfer.NewRate(int64(c.ImageRate)),
		Open: func(digest chunk.Sum) (*os.File, error) { return open(hex.EncodeToString(digest[:])) }})
}
