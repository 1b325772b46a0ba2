package catalogue

import (
	"time"

	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/vmimage"
)

const (
	// tidyEvery is how often a host looks for copies that it does not need.
	tidyEvery = time.Hour
	// oldVersion is how long a version stays here whose name has moved: cloud VMs that were made of it may start.
	oldVersion = 24 * time.Hour
	// containerRoom is what is kept free for a container image, whose size nobody knows before.
	containerRoom = 4 * farm.GiB
)

// copies are the images that this host can fetch again, those of the catalogue and of references to container images:
// what its administrators brought is theirs to remove.
func (f *Fleet) copies() vmimage.PurgeOptions {
	f.mu.Lock()
	images, names := f.images, f.copy.Names
	f.mu.Unlock()
	kept := map[string]bool{} // by digest: somebody gave it a name here
	all, _ := f.Images.List()
	for _, i := range all {
		r, err := container.Parse(i.Source)
		ours := names[i.Name] == i.Digest || err == nil && i.Name == r.ImageName()
		kept[i.Digest] = kept[i.Digest] || !ours
	}
	return vmimage.PurgeOptions{Grace: oldVersion,
		InUse: func(digest string) bool { return len(f.Users(digest)) > 0 },
		Only: func(digest string) bool {
			if kept[digest] {
				return false
			}
			if _, ok := images[digest]; ok {
				return true
			}
			i, err := f.Images.Get(digest)
			return err == nil && container.Is(i.Source)
		}}
}

// tidy removes copies that have lost their name, and those that nobody has used for long.
func (f *Fleet) tidy() {
	o := f.copies()
	if f.Unused != nil {
		o.Unused = f.Unused()
	}
	f.logPurged(f.Images.Purge(o))
}

// makeRoom removes copies, those longest unused first, where there is no room for an image and that would do.
func (f *Fleet) makeRoom(manifest []byte) {
	i, err := vmimage.ParseManifest(manifest)
	if err != nil {
		return // Install reports it
	}
	size := i.Size
	if f.Transfers != nil {
		size *= 2 // on its way, and in the store
	}
	f.logPurged(f.Images.MakeRoom(size, f.copies()))
}

// MakeRoom removes copies, those longest unused first, where there may be no room for a container image.
func (f *Fleet) MakeRoom() { f.logPurged(f.Images.MakeRoom(containerRoom, f.copies())) }

func (f *Fleet) logPurged(gone []vmimage.Purged, err error) {
	for _, p := range gone {
		f.Log.Info("image removed", "digest", p.Digest, "names", p.Names, "size", p.Size.String(), "reason", p.Reason)
	}
	if err != nil {
		f.Log.Warn("images not removed", "error", err)
	}
}
