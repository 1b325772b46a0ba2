package vmimage

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// PurgeOptions say what Purge removes. Images that a VM uses and those that are pinned always stay.
type PurgeOptions struct {
	// InUse reports whether a VM uses the image with this digest ("sha256:…"); nil means none does.
	InUse func(digest string) bool
	// Only limits it to some images, by digest; nil: to none.
	Only func(digest string) bool
	// Grace leaves images without a name that a VM was started from, or that were stored, since so long.
	Grace time.Duration
	// Unused removes named images, too, that no VM was started from for so long; 0: only those that lost their name.
	Unused time.Duration
	// Free removes named images, those longest unused first, until the file system has so much free.
	Free farm.Bytes
	// DryRun removes nothing.
	DryRun bool
}

// Purged is an image that Purge removed.
type Purged struct {
	Names    []string
	Digest   string
	Size     farm.Bytes // on the disk
	LastUsed time.Time  // or stored, if no VM was started from it since
	Reason   string
}

// Purge removes images that nobody needs, and downloads that nobody continues. What was removed before an error is
// returned with it.
func (s *Store) Purge(o PurgeOptions) ([]Purged, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	candidates, err := s.candidates(o)
	if err != nil {
		return nil, err
	}
	left, err := free(s)
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	purged := choose(candidates, o, left, time.Now())
	if o.DryRun {
		return purged, nil
	}
	for n, p := range purged {
		for _, name := range p.Names {
			if err := s.root.Remove(path.Join("images", name)); err != nil {
				return purged[:n], storeError(s.dir, err)
			}
		}
		if err := s.removeBlob(blobName(p.Digest)); err != nil {
			return purged[:n], err
		}
	}
	return purged, sweepPartial(s.root)
}

// choose decides which of the candidates go, and why.
func choose(candidates []Purged, o PurgeOptions, free farm.Bytes, now time.Time) []Purged {
	slices.SortFunc(candidates, func(a, b Purged) int {
		return cmp.Or(cmp.Compare(min(len(a.Names), 1), min(len(b.Names), 1)), a.LastUsed.Compare(b.LastUsed))
	})
	var gone []Purged
	for _, c := range candidates {
		switch {
		case len(c.Names) == 0 && now.Sub(c.LastUsed) >= o.Grace:
			c.Reason = "no name"
		case o.Unused > 0 && now.Sub(c.LastUsed) >= o.Unused:
			c.Reason = "unused since " + c.LastUsed.Format(time.DateOnly)
		case free < o.Free:
			c.Reason = "the longest unused, and space is short"
		default:
			continue
		}
		free += c.Size
		gone = append(gone, c)
	}
	return gone
}

// candidates are the images that may be removed.
func (s *Store) candidates(o PurgeOptions) ([]Purged, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	blobs, err := fs.ReadDir(s.root.FS(), "blobs")
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	var all []Purged
	for _, b := range blobs {
		digest := strings.Replace(b.Name(), "-", ":", 1)
		if !validDigest.MatchString(digest) || s.used(digest, o.InUse) || o.Only != nil && !o.Only(digest) {
			continue
		}
		// A mark that cannot be read may say that the image is pinned.
		if m, err := s.mark(b.Name()); err != nil || m.Pinned {
			continue
		}
		p := Purged{Names: names[b.Name()], Digest: digest, Size: blobSize(s.root, b.Name())}
		if info, err := b.Info(); err == nil {
			p.LastUsed = info.ModTime()
		}
		all = append(all, p)
	}
	return all, nil
}

// names are the names of each blob that has some.
func (s *Store) names() (map[string][]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), "images")
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	names := map[string][]string{}
	for _, e := range entries {
		target, err := s.root.Readlink(path.Join("images", e.Name()))
		if err != nil {
			return nil, storeError(s.dir, err)
		}
		names[path.Base(target)] = append(names[path.Base(target)], e.Name())
	}
	return names, nil
}

// blobSize is what a blob takes on the disk.
func blobSize(root *os.Root, blob string) (size farm.Bytes) {
	files, _ := fs.ReadDir(root.FS(), path.Join("blobs", blob))
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += onDisk(info)
		}
	}
	return size
}
