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
	dir, err := os.MkdirTemp(l.Dir, "share")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	image, err := l.export(name, dir)
	if err != nil {
		return err
	}
	words := []string{"--name", name}
	if image.Site {
		words = append(words, "--site")
	}
	for _, other := range to {
		if err := other.importImage(ctx, dir, words...); err != nil {
			return err
		}
	}
	return nil
}

// Export leaves the micro image in an empty directory, for Options.Image of labs that reach no mirror of Debian.
func (l *Lab) Export(dir string) error {
	_, err := l.export(vmimage.MicroName, dir)
	return err
}

// export leaves an image in an empty directory on the same file system.
func (l *Lab) export(name, dir string) (vmimage.Image, error) {
	store, err := vmimage.Open(l.path("state/images"))
	if err != nil {
		return vmimage.Image{}, err
	}
	defer store.Close()
	image, err := store.Get(name)
	if err != nil {
		return image, err
	}
	return image, errors.Join(os.Link(image.Kernel(), filepath.Join(dir, filepath.Base(image.Kernel()))),
		os.Link(image.Initrd(), filepath.Join(dir, "initrd")),
		os.WriteFile(filepath.Join(dir, "cmdline"), []byte(image.Cmdline+"\n"), 0o644))
}

func (l *Lab) importImage(ctx context.Context, dir string, words ...string) error {
	out, err := l.Grange(ctx, append([]string{"image", "import", dir}, words...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("image import: %w\n%s", err, out)
	}
	return nil
}
