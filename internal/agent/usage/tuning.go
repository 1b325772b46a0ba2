package usage

import (
	"context"

	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hosttree"
	"github.com/grange-project/grange/internal/tuning"
)

// Audit asks the tuning audit how this host is tuned.
func Audit(ctx context.Context) (s tuning.HostState, err error) {
	tree, err := hosttree.Live(ctx)
	if err != nil {
		return s, err
	}
	defer tree.Close()
	h, err := hostfacts.Read(tree)
	if err != nil {
		return s, err
	}
	return tuning.State(h)
}
