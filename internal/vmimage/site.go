package vmimage

import (
	"errors"
	"os"
	"path"
)

// siteDir has an empty file for each image that the site vouches for. The mark belongs to the bytes and not to a name:
// a name may come to mean another image, and an image that somebody copies to another host is not vouched for there.
const siteDir = "site"

// Vouch marks the image as the site's own: VMs of it may hold secrets of the site, as the key of its batch system.
// Whoever may write into such an image is root wherever those secrets are good for. Errors: farm.CodeNoImage,
// farm.CodeImageStore.
func (s *Store) Vouch(ref string) (Image, error) {
	unlock, err := s.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	i, err := s.Get(ref)
	if err != nil {
		return Image{}, err
	}
	f, err := s.root.OpenFile(path.Join(siteDir, blobName(i.Digest)), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return Image{}, writeError(s.dir, err)
	}
	if err := errors.Join(f.Close(), syncDir(s.root, siteDir)); err != nil {
		return Image{}, writeError(s.dir, err)
	}
	i.Site = true
	return i, nil
}

func vouched(root *os.Root, blob string) bool {
	_, err := root.Lstat(path.Join(siteDir, blob))
	return err == nil
}
