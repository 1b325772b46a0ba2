package vmimage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Version is an image that a name has meant.
type Version struct {
	Digest string    `json:"digest"`
	Since  time.Time `json:"since"`
}

// namesDir has a file for each name: a line of JSON for each image that it has meant, the oldest first.
const namesDir = "names"

// mostVersions bounds what is kept of a name.
const mostVersions = 200

// History returns what a name has meant, the latest last. An unknown name has none.
func (s *Store) History(name string) ([]Version, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	text, err := s.root.ReadFile(path.Join(namesDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, storeError(s.dir, err)
	}
	var all []Version
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var v Version
		if json.Unmarshal(lines.Bytes(), &v) == nil && validDigest.MatchString(v.Digest) {
			all = append(all, v)
		}
	}
	return all, nil
}

// remember adds a version to a name's history, unless it is the latest already. It needs the store's lock.
func (s *Store) remember(name, digest string) error {
	all, err := s.History(name)
	if err != nil {
		return err
	}
	if n := len(all); n > 0 && all[n-1].Digest == digest {
		return nil
	}
	all = append(all, Version{digest, time.Now().UTC().Truncate(time.Second)})
	var text bytes.Buffer
	for _, v := range all[max(0, len(all)-mostVersions):] {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	return s.replace(path.Join(namesDir, name), text.Bytes())
}

// Tag gives the image that ref means another name, or an older version its name back. Errors: those of Get,
// CodeBadImageName.
func (s *Store) Tag(ref, name string) (Image, error) {
	if err := CheckName(name); err != nil {
		return Image{}, err
	}
	unlock, err := s.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	i, err := s.Get(ref)
	if err != nil {
		return Image{}, err
	}
	return s.link(name, blobName(i.Digest))
}

// replace writes a small file of the store, whole or not at all.
func (s *Store) replace(name string, text []byte) error {
	next := path.Join("tmp", "file-"+path.Base(name))
	err := s.root.RemoveAll(next) // of one that was killed
	if err == nil {
		err = writeSynced(s.root, next, text)
	}
	if err == nil {
		err = s.root.Rename(next, name)
	}
	if err = errors.Join(err, syncDir(s.root, path.Dir(name))); err != nil {
		return writeError(s.dir, err)
	}
	return nil
}

func writeSynced(root *os.Root, name string, text []byte) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// noImageNamed is the error of a name that is not there, with those that may be meant.
func (s *Store) noImageNamed(ref string) error {
	entries, _ := fs.ReadDir(s.root.FS(), "images")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return farm.NoImageNamed(ref, names)
}
