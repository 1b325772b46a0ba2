package cli

import (
	"context"

	"github.com/grange-project/grange/internal/hosttree"
)

// hostTree is the host that a command reads: this one, or the recorded one that --from names.
func hostTree(ctx context.Context, from string) (*hosttree.Tree, error) {
	if from == "" {
		return hosttree.Live(ctx)
	}
	return hosttree.Open(from)
}
