package vmimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// Exchange is what a store does for the catalogue of a fleet: the server's hands files out, a host's takes them in.
type Exchange struct{ *Store }

// Manifest returns image.json of an image: with the files that it names it is the image.
func (s Exchange) Manifest(digest string) ([]byte, error) {
	i, err := s.Get(digest)
	if err != nil {
		return nil, err
	}
	return i.marshal()
}

// ParseManifest reads image.json, and refuses one that is of another digest than it says, or of an absurd size.
func ParseManifest(text []byte) (Image, error) {
	i, err := unmarshal(text)
	switch {
	case err != nil:
	case i.digest() != i.Digest:
		err = fmt.Errorf("it is of %s, and says %s", i.digest(), i.Digest)
	case slices.ContainsFunc(i.Files, func(f File) bool { return f.Size > maxVirtual }):
		err = errors.New("a file of it is larger than a disk may be")
	}
	if err != nil {
		return Image{}, badImage("the description of an image makes no sense", "add it to the catalogue again", err)
	}
	return i, nil
}

// OpenBlob opens a file of any image by its checksum, in hex. Error: farm.CodeNoImage.
func (s Exchange) OpenBlob(sum string) (*os.File, error) {
	blobs, err := fs.ReadDir(s.root.FS(), "blobs")
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	for _, b := range blobs {
		i, err := s.read(b.Name())
		if err != nil {
			continue
		}
		for _, f := range i.Files {
			if f.SHA256 == sum {
				file, err := s.root.Open(path.Join("blobs", b.Name(), f.Name))
				if err != nil {
					return nil, storeError(s.dir, err)
				}
				return file, nil
			}
		}
	}
	return nil, noImage(sum, nil)
}

// Used is what all images take on the disk.
func (s Exchange) Used() (used farm.Bytes, err error) {
	blobs, err := fs.ReadDir(s.root.FS(), "blobs")
	if err != nil {
		return 0, storeError(s.dir, err)
	}
	for _, b := range blobs {
		used += blobSize(s.root, b.Name())
	}
	return used, nil
}

// Digests are those of all images.
func (s Exchange) Digests() ([]string, error) {
	blobs, err := fs.ReadDir(s.root.FS(), "blobs")
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	var all []string
	for _, b := range blobs {
		if digest := strings.Replace(b.Name(), "-", ":", 1); validDigest.MatchString(digest) {
			all = append(all, digest)
		}
	}
	return all, nil
}

// Discard removes an image with all its names. Errors: those of Remove.
func (s Exchange) Discard(digest string, inUse func(digest string) bool) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	blob := blobName(digest)
	if _, err := s.root.Lstat(path.Join("blobs", blob)); !validDigest.MatchString(digest) || err != nil {
		return noImage(digest, err)
	}
	if s.used(digest, inUse) {
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeImageInUse,
			Message: fmt.Sprintf("image %s is used by a VM", digest),
			Hint:    "end the VMs that use it, or try again when they have ended"}
	}
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, name := range names[blob] {
		if err := s.root.Remove(path.Join("images", name)); err != nil {
			return storeError(s.dir, err)
		}
	}
	return s.removeBlob(blob)
}

// Untag takes a name from the image with digest, whose files stay; a name that means another one by now is left alone.
func (s Exchange) Untag(name, digest string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	link := path.Join("images", name)
	target, err := s.root.Readlink(link)
	if err == nil && path.Base(target) == blobName(digest) {
		err = s.root.Remove(link)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storeError(s.dir, err)
	}
	return nil
}

// Overrule has the marks of a fleet hold beside this store's own, by digest: whichever allows less.
func (s Exchange) Overrule(marks map[string]Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overruled = maps.Clone(marks)
}

// stricter is which of two marks holds, pins apart.
func stricter(own, fleet Mark) Mark {
	rank := map[State]int{Deprecated: 1, Withdrawn: 2}
	if rank[fleet.State] > rank[own.State] {
		own.State, own.Successor, own.Reason = fleet.State, fleet.Successor, fleet.Reason
	}
	return own
}

// Fetch brings a file with a checksum, in hex, and a size, into a directory that lasts from one call to the next.
type Fetch func(ctx context.Context, dir *os.Root, sum string, size int64, report Reporter) (*os.File, error)

// Reporter is told how many bytes of a file have come, and in note why none come at the moment.
type Reporter func(done int64, note string)

// Install is an image that a fleet has, on its way into the store.
type Install struct {
	Name     string // "": none
	Manifest []byte
	Fetch    Fetch
	Progress func(Progress) // may be nil
}

// Install brings an image of a fleet into the store. Whoever wants the same waits for one transfer; what was broken off
// is continued. What came is verified, and checked as Import does. Errors: those of Import and of Fetch.
func (s Exchange) Install(ctx context.Context, o Install) (Image, error) {
	want, err := ParseManifest(o.Manifest)
	if err != nil {
		return Image{}, err
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Name != "" {
		if err := CheckName(o.Name); err != nil {
			return Image{}, err
		}
	}
	f := &fetch{FetchOptions: FetchOptions{Name: o.Name, Source: "image " + want.title(), Progress: o.Progress},
		store: s.Store, dir: partialName(want.Digest)}
	return f.run(ctx, func(dir *os.Root) (Image, error) {
		if i, err := s.Get(want.Digest); err == nil { // somebody else was faster
			return s.name(i, o.Name)
		}
		return f.install(ctx, dir, want, o)
	})
}

func (f *fetch) install(ctx context.Context, dir *os.Root, want Image, o Install) (Image, error) {
	s := f.store
	if left, err := free(s); err != nil {
		return Image{}, storeError(s.dir, err)
	} else if needs := roomFor(s, want.Size); left < needs {
		return Image{}, noRoomFor(s.dir, needs-left)
	}
	d, err := s.newDraft()
	if err != nil {
		return Image{}, err
	}
	defer d.discard()
	before := farm.Bytes(0)
	for _, part := range want.Files {
		own, err := subRoot(dir, part.SHA256)
		if err != nil {
			return Image{}, writeError(s.dir, err)
		}
		file, err := o.Fetch(ctx, own, part.SHA256, int64(part.Size), func(done int64, note string) {
			o.Progress(Progress{Step: "transfer", Done: before + farm.Bytes(done), Total: want.Size, Note: note})
		})
		if err == nil {
			err = d.takePart(ctx, want.Kind, part, file)
			file.Close()
		}
		if farm.IsCode(err, farm.CodeBadImage) { // what came is not what was to come
			dir.RemoveAll(part.SHA256)
		}
		own.Close()
		if err != nil {
			return Image{}, writeError(s.dir, err)
		}
		before += part.Size
	}
	files := d.image.Files
	d.image = want
	if d.image.Files = files; d.image.digest() != want.Digest {
		return Image{}, badImage("what came is not image "+want.Digest, "try again", nil)
	}
	d.image.Name, d.image.Size = "", want.Size
	return d.commit(o.Name)
}

func subRoot(dir *os.Root, name string) (*os.Root, error) {
	if err := dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return dir.OpenRoot(name)
}

// takePart takes a file of an image in, checked as one that somebody imports is: the catalogue vouches for its bytes,
// and no header gets to QEMU that this host has not read.
func (d *draft) takePart(ctx context.Context, kind Kind, part File, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size, nothing := info.Size(), func(farm.Bytes, farm.Bytes) {}
	switch {
	case farm.Bytes(size) != part.Size:
		err = fmt.Errorf("%d of %d bytes", size, part.Size)
	case kind == Disk:
		err = d.importDisk(ctx, input{File: file, size: size}, nothing)
	case kind == Kernel:
		err = d.importPart(ctx, part.Name, file, part.Name != initrdFile, nothing)
	default:
		err = d.copyFile(ctx, part.Name, file, size, nil)
	}
	if err != nil {
		return err
	}
	if came := d.image.Files[len(d.image.Files)-1]; came.SHA256 != part.SHA256 || came.Name != part.Name {
		return badImage(fmt.Sprintf("file %s of the image came with checksum %s, not %s", came.Name, came.SHA256,
			part.SHA256), "try again", nil)
	}
	return nil
}

// SumOf reads a file and returns its SHA-256, in hex.
func SumOf(ctx context.Context, f io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(h, readerWithContext{ctx, f}, make([]byte, copyBlock)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// MakeRoom removes images of o, those longest unused first, for one of this size: as many as it takes, and none where
// all of them would not do.
func (s Exchange) MakeRoom(size farm.Bytes, o PurgeOptions) ([]Purged, error) {
	left, err := free(s.Store)
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	if o.Free = roomFor(s.Store, size); o.Free < size || left >= o.Free {
		return nil, nil
	}
	o.DryRun = true
	would, err := s.Purge(o)
	for _, p := range would {
		left += p.Size
	}
	if err != nil || left < o.Free {
		return nil, err
	}
	o.DryRun = false
	return s.Purge(o)
}

func noRoomFor(dir string, missing farm.Bytes) error {
	return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull,
		Message: fmt.Sprintf("the file system or the quota of %s lacks %v for the image", dir, missing),
		Hint:    "free space there, remove unused images: `grange image purge --free`"}
}
