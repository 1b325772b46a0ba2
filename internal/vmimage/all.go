package vmimage

import (
	"io/fs"
	"slices"
)

// All returns all images of a store, those without a name too, the newest first. What cannot be read is left out.
func All(s *Store) ([]Image, error) {
	blobs, err := fs.ReadDir(s.root.FS(), "blobs")
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	var all []Image
	for _, b := range blobs {
		if i, err := s.read(b.Name()); err == nil {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b Image) int { return b.Created.Compare(a.Created) })
	return all, nil
}
