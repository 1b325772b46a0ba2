package app

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hosttree"
)

// HostTree is the host that a command reads: this one, or the recorded one that --from names.
func HostTree(ctx context.Context, from string) (*hosttree.Tree, error) {
	if from == "" {
		return hosttree.Live(ctx)
	}
	return hosttree.Open(from)
}

// HostFacts reads the facts of this host, or of the recorded one that from names. The tree is for what else a command
// reads of the host; the caller closes it.
func HostFacts(ctx context.Context, from string) (farm.HostFacts, *hosttree.Tree, error) {
	tree, err := HostTree(ctx, from)
	if err != nil {
		return farm.HostFacts{}, nil, err
	}
	h, err := hostfacts.Read(tree)
	if err != nil {
		tree.Close()
		return farm.HostFacts{}, nil, err
	}
	return h, tree, nil
}

// FromFlag gives a command --from.
func FromFlag(cmd *cobra.Command, from *string) {
	cmd.Flags().Var(&NonEmpty{from, "name a directory or an archive; without --from it is this host"}, "from",
		"read a recorded host instead of this one: a directory, an archive, or - for standard input")
}

// NonEmpty is the value of a flag that names a host. An empty one is a variable that was not set in somebody's script,
// and never means this host.
type NonEmpty struct {
	Value *string
	Hint  string
}

func (f *NonEmpty) String() string {
	if f.Value == nil {
		return ""
	}
	return *f.Value
}

// Type is what help calls the value.
func (*NonEmpty) Type() string { return "string" }

func (f *NonEmpty) Set(value string) error {
	if value == "" {
		return errors.New(f.Hint)
	}
	*f.Value = value
	return nil
}
