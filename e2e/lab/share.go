package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/vmimage"
)

// Share takes an image that was built on this host to others, as a site would.
func (l *Lab) Share(ctx context.Context, name string, to ...*Lab) error {
	store, err := vmimage.Open(l.path("state/images"))
	if err != nil {
		return err
	}
	defer store.Close()
	image, err := store.Get(name)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(l.Dir, "share")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	err = errors.Join(os.Link(image.Kernel(), filepath.Join(dir, filepath.Base(image.Kernel()))),
		os.Link(image.Initrd(), filepath.Join(dir, "initrd")),
		os.WriteFile(filepath.Join(dir, "cmdline"), []byte(image.Cmdline+"\n"), 0o644))
	if err != nil {
		return err
	}
	words := []string{"image", "import", dir, "--name", name}
	if image.Site {
		words = append(words, "--site")
	}
	for _, other := range to {
		if out, err := other.Grange(ctx, words...).CombinedOutput(); err != nil {
			return fmt.Errorf("image import: %w\n%s", err, out)
		}
	}
	return nil
}
