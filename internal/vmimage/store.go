package vmimage

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
)

// Store is a directory of images:
//
//	blobs/sha256-HEX/  the files of one image and its image.json, never changed
//	images/NAME        a symbolic link to ../blobs/sha256-HEX, replaced by rename
//	tmp/               what is being built; swept by Open
//	cache/             downloaded packages; may be deleted at any time
//	partial/           downloads of images that are under way, or were broken off; swept by Open when they are old
//	site/sha256-HEX    marks the images that the site vouches for
//	marks/sha256-HEX   what administrators have said of an image: deprecated, withdrawn, pinned
//	names/NAME         what a name has meant
//
// Several processes may use one store at once. Methods may be called from several goroutines.
type Store struct {
	dir   string
	root  *os.Root
	quota farm.Bytes // of all files; 0: as much as their file system has
	pace  Pace

	mu    sync.Mutex
	using map[string]int // digest → number of Acquire calls not yet released

	overruled map[string]Mark // by digest; see Overrule
}

// Open opens the store below dir and makes it if need be. Left-overs of builds that died are removed, unless another
// process builds now. Error: farm.CodeImageStore.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, storeError(dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, storeError(dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, storeError(dir, err)
	}
	s := &Store{dir: dir, root: root, using: map[string]int{}}
	for _, d := range []string{"blobs", "images", "tmp", "cache", siteDir, partialDir, marksDir, namesDir} {
		// QEMU runs as another user and must get to the files whatever our umask is.
		err := root.Mkdir(d, 0o755)
		if err == nil {
			err = root.Chmod(d, 0o755)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			root.Close()
			return nil, storeError(dir, err)
		}
	}
	if err := errors.Join(s.sweep(), sweepPartial(s.root)); err != nil {
		root.Close()
		return nil, storeError(dir, err)
	}
	return s, nil
}

// Close gives back the directory handle. Images stay.
func (s *Store) Close() error { return s.root.Close() }

// List returns the named images by name. An entry that cannot be read is left out and its error joined to the result's,
// so that one broken image does not hide the others.
func (s *Store) List() ([]Image, error) {
	entries, err := fs.ReadDir(s.root.FS(), "images")
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	var images []Image
	var errs []error
	for _, e := range entries {
		if !validName.MatchString(e.Name()) {
			continue
		}
		i, err := s.byName(e.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		images = append(images, i)
	}
	return images, errors.Join(errs...)
}

// Get finds an image by name, by digest ("sha256:…"), by the first four or more digits of its digest, or by the
// reference of a container image that Fetch has brought: that is not looked up anew.
// Errors: farm.CodeNoImage, CodeManyImages, farm.CodeImageStore. What it returns may be removed the next moment:
// use Acquire for an image that a VM is about to start from.
func (s *Store) Get(ref string) (Image, error) {
	if container.Is(ref) {
		return s.byReference(ref)
	}
	if validName.MatchString(ref) {
		i, err := s.byName(ref)
		if !errors.Is(err, fs.ErrNotExist) {
			return i, err
		}
	}
	prefix := "sha256:" + strings.TrimPrefix(ref, "sha256:")
	if !validPrefix.MatchString(prefix) {
		return Image{}, s.noImageNamed(ref)
	}
	blobs, err := fs.ReadDir(s.root.FS(), "blobs")
	if err != nil {
		return Image{}, storeError(s.dir, err)
	}
	var found []string
	for _, b := range blobs {
		if strings.HasPrefix(b.Name(), blobName(prefix)) {
			found = append(found, b.Name())
		}
	}
	switch len(found) {
	case 0:
		return Image{}, s.noImageNamed(ref)
	case 1:
	default:
		return Image{}, &farm.Error{Kind: farm.Invalid, Code: CodeManyImages,
			Message: fmt.Sprintf("%q fits %d images", ref, len(found)), Hint: "give more digits of the digest"}
	}
	i, err := s.read(found[0])
	if err != nil {
		return Image{}, storeError(s.dir, err)
	}
	names, _ := s.List()
	for _, n := range names {
		if n.Digest == i.Digest {
			return n, nil
		}
	}
	return i, nil
}

// Acquire is Get for a VM that starts: it keeps the image in this process from being removed until release is called.
// Error: also farm.CodeWithdrawn.
func (s *Store) Acquire(ref string) (i Image, release func(), err error) {
	if i, release, err = s.hold(ref); err != nil {
		return Image{}, nil, err
	}
	if err := i.refused(); err != nil {
		release()
		return Image{}, nil, err
	}
	now := time.Now()
	s.root.Chtimes(path.Join("blobs", blobName(i.Digest)), now, now) // Purge goes by it
	return i, release, nil
}

// hold is Get, and keeps the image from being removed.
func (s *Store) hold(ref string) (i Image, release func(), err error) {
	unlock, err := s.lock()
	if err != nil {
		return Image{}, nil, err
	}
	defer unlock()
	if i, err = s.Get(ref); err != nil {
		return Image{}, nil, err
	}
	s.mu.Lock()
	s.using[i.Digest]++
	s.mu.Unlock()
	return i, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.using[i.Digest]--
	}), nil
}

// Remove takes the name away, and with the last name the files. inUse reports whether a VM uses the image with this
// digest ("sha256:…"); nil means none does. Errors: farm.CodeNoImage, farm.CodeImageInUse, farm.CodeImageStore.
func (s *Store) Remove(name string, inUse func(digest string) bool) error {
	if err := CheckName(name); err != nil {
		return err
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	// The link alone is read: an image whose record is damaged must still be removable.
	target, err := s.root.Readlink(path.Join("images", name))
	if errors.Is(err, fs.ErrNotExist) {
		return noImage(name, err)
	} else if err != nil {
		return storeError(s.dir, err)
	}
	blob := path.Base(target)
	digest := strings.Replace(blob, "-", ":", 1)
	if s.used(digest, inUse) {
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeImageInUse,
			Message: fmt.Sprintf("image %q is used by a VM", name),
			Hint:    "end the VMs that use it, or try again when they have ended"}
	}
	if err := s.root.Remove(path.Join("images", name)); err != nil {
		return storeError(s.dir, err)
	}
	names, err := s.names()
	if err != nil || len(names[blob]) > 0 || !validDigest.MatchString(digest) {
		return err
	}
	return s.removeBlob(blob)
}

// Verify reads every file of the image again and compares with its digests. Error: farm.CodeBadImage when they differ.
func (s *Store) Verify(ctx context.Context, ref string) error {
	i, release, err := s.hold(ref)
	if err != nil {
		return err
	}
	defer release()
	for n, f := range i.Files {
		file, err := s.root.Open(path.Join("blobs", blobName(i.Digest), f.Name))
		if err != nil {
			return storeError(s.dir, err)
		}
		h := sha256.New()
		size, err := io.Copy(h, readerWithContext{ctx, file})
		file.Close()
		if err != nil {
			return fmt.Errorf("reading %s of image %s: %w", f.Name, ref, err)
		}
		i.Files[n] = File{f.Name, farm.Bytes(size), hex.EncodeToString(h.Sum(nil))}
	}
	if digest := i.digest(); digest != i.Digest {
		return &farm.Error{Kind: farm.Conflict, Code: farm.CodeBadImage,
			Message: fmt.Sprintf("image %q has changed since it was stored: %s is now %s", ref, i.Digest, digest),
			Hint:    "remove it and import or build it again"}
	}
	return nil
}

// used needs the store's lock, so that Acquire cannot slip in between.
func (s *Store) used(digest string, inUse func(string) bool) bool {
	s.mu.Lock()
	held := s.using[digest] > 0
	s.mu.Unlock()
	return held || inUse != nil && inUse(digest)
}

// removeBlob moves the blob away first: half a blob is never seen, and Open sweeps what a crash leaves.
func (s *Store) removeBlob(blob string) error {
	gone := path.Join("tmp", "gone-"+rand.Text())
	if err := s.root.Rename(path.Join("blobs", blob), gone); err != nil {
		return storeError(s.dir, err)
	}
	if err := s.root.RemoveAll(gone); err != nil {
		return storeError(s.dir, err)
	}
	s.root.Remove(path.Join(siteDir, blob))
	return nil
}

func (s *Store) byName(name string) (Image, error) {
	target, err := s.root.Readlink(path.Join("images", name))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, noImage(name, err)
	} else if err != nil {
		return Image{}, storeError(s.dir, err)
	}
	i, err := s.read(path.Base(target))
	if err != nil {
		return Image{}, storeError(s.dir, fmt.Errorf("image %s: %w", name, err))
	}
	i.Name = name
	return i, nil
}

func (s *Store) read(blob string) (Image, error) {
	text, err := s.root.ReadFile(path.Join("blobs", blob, recordFile))
	if err != nil {
		return Image{}, unlink(err)
	}
	i, err := unmarshal(text)
	if err != nil {
		return Image{}, fmt.Errorf("%s of %s: %w", recordFile, blob, err)
	}
	if blobName(i.Digest) != blob {
		return Image{}, fmt.Errorf("%s of %s says %s", recordFile, blob, i.Digest)
	}
	i.Dir = filepath.Join(s.dir, "blobs", blob)
	i.Site = vouched(s.root, blob)
	i.Mark, err = s.mark(blob)
	return i, err
}

// unlink turns "not exist" into another error: a name that leads nowhere is damage, and must not read as "no such
// image".
func unlink(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error())
	}
	return err
}

// digest is what names the image: of a disk the digest of its file, of others that of a text that lists files, command
// line and configuration.
func (i Image) digest() string {
	if i.Kind == Disk && len(i.Files) == 1 {
		return "sha256:" + i.Files[0].SHA256
	}
	h := sha256.New()
	fmt.Fprintf(h, "grange image 1\nkind %s\ncmdline %s\n", i.Kind, i.Cmdline)
	if i.Config != nil {
		config, _ := json.Marshal(i.Config) // cannot fail: strings, and a map whose keys it sorts
		fmt.Fprintf(h, "config %s\n", config)
	}
	for _, f := range slices.SortedFunc(slices.Values(i.Files),
		func(a, b File) int { return cmp.Compare(a.Name, b.Name) }) {
		fmt.Fprintf(h, "file %s %s\n", f.Name, f.SHA256)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func blobName(digest string) string { return strings.Replace(digest, ":", "-", 1) }

// draft is an image that is being made, in a directory below tmp.
type draft struct {
	store  *Store
	root   *os.Root
	name   string // of the directory, below the store
	image  Image
	files  []*os.File // to be closed at its end
	unlock func()
}

func (s *Store) newDraft() (*draft, error) {
	unlock, err := s.flock("building", syscall.LOCK_SH)
	if err != nil {
		return nil, storeError(s.dir, err)
	}
	d := &draft{store: s, name: path.Join("tmp", "new-"+rand.Text()), unlock: unlock}
	if err := s.root.Mkdir(d.name, 0o700); err != nil {
		unlock()
		return nil, writeError(s.dir, err)
	}
	if d.root, err = s.root.OpenRoot(d.name); err != nil {
		d.discard()
		return nil, storeError(s.dir, err)
	}
	return d, nil
}

// discard removes what is left of the draft; after a commit that is nothing.
func (d *draft) discard() {
	for _, f := range d.files {
		f.Close()
	}
	if d.root != nil {
		d.root.Close()
	}
	d.store.root.RemoveAll(d.name) // what stays is swept by the next Open
	d.unlock()
}

// write adds one file, hashed on its way.
func (d *draft) write(name string, from io.Reader) error {
	f, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return writeError(d.store.dir, err)
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, h), from)
	if err != nil {
		return writeError(d.store.dir, err)
	}
	return d.finish(f, name, size, h.Sum(nil))
}

func (d *draft) finish(f *os.File, name string, size int64, sum []byte) error {
	if err := errors.Join(f.Chmod(0o444), f.Sync()); err != nil {
		return writeError(d.store.dir, err)
	}
	d.image.Files = append(d.image.Files, File{name, farm.Bytes(size), hex.EncodeToString(sum)})
	d.image.Size += farm.Bytes(size)
	return nil
}

// commit moves the draft into place and gives it its name. The image appears whole or not at all.
func (d *draft) commit(name string) (Image, error) {
	s := d.store
	d.image.Digest, d.image.Created = d.image.digest(), time.Now().UTC().Truncate(time.Second)
	text, err := d.image.marshal()
	if err != nil {
		return Image{}, err
	}
	files := d.image.Files // image.json is no part of the image
	if err := d.write(recordFile, strings.NewReader(string(text))); err != nil {
		return Image{}, err
	}
	d.image.Files = files
	if err := errors.Join(s.root.Chmod(d.name, 0o755), syncDir(s.root, d.name)); err != nil {
		return Image{}, writeError(s.dir, err)
	}
	unlock, err := s.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	blob := blobName(d.image.Digest)
	// The same content may be here already, under this or another name; running VMs keep using those files. A damaged
	// record is moved aside, so that building again heals it.
	if _, err := s.read(blob); err != nil {
		if _, err := s.root.Lstat(path.Join("blobs", blob)); err == nil {
			if err := s.removeBlob(blob); err != nil {
				return Image{}, err
			}
		}
		if err := s.root.Rename(d.name, path.Join("blobs", blob)); err != nil {
			return Image{}, writeError(s.dir, err)
		}
	}
	return s.link(name, blob)
}

// name gives an image that is there one more name, or takes a name from another image.
func (s *Store) name(i Image, name string) (Image, error) {
	unlock, err := s.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if _, err := s.read(blobName(i.Digest)); err != nil { // it was removed meanwhile
		return Image{}, storeError(s.dir, err)
	}
	return s.link(name, blobName(i.Digest))
}

// link has name, if there is one, mean a blob. It needs the store's lock.
func (s *Store) link(name, blob string) (Image, error) {
	if name == "" { // of an image that is used by its digest alone
		if err := syncDir(s.root, "blobs"); err != nil {
			return Image{}, writeError(s.dir, err)
		}
		return s.read(blob)
	}
	link := path.Join("tmp", "link-"+rand.Text())
	if err := s.root.Symlink(path.Join("..", "blobs", blob), link); err != nil {
		return Image{}, writeError(s.dir, err)
	}
	if err := s.root.Rename(link, path.Join("images", name)); err != nil {
		s.root.Remove(link)
		return Image{}, writeError(s.dir, err)
	}
	if err := errors.Join(syncDir(s.root, "blobs"), syncDir(s.root, "images")); err != nil {
		return Image{}, writeError(s.dir, err)
	}
	if err := s.remember(name, strings.Replace(blob, "-", ":", 1)); err != nil {
		return Image{}, err
	}
	return s.byName(name)
}

func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// sweep removes what builds left that died. A build holds "building" shared, so nothing alive is touched.
func (s *Store) sweep() error {
	unlock, err := s.flock("building", syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	} else if err != nil {
		return err
	}
	defer unlock()
	entries, err := fs.ReadDir(s.root.FS(), "tmp")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.root.RemoveAll(path.Join("tmp", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// lock keeps other processes and goroutines from changing names and blobs. Held for moments only.
func (s *Store) lock() (unlock func(), err error) {
	if unlock, err = s.flock("lock", syscall.LOCK_EX); err != nil {
		return nil, storeError(s.dir, err)
	}
	return unlock, nil
}

// flock locks a file of the store. Each call opens it anew, so it also keeps goroutines of this process apart.
func (s *Store) flock(name string, how int) (unlock func(), err error) {
	f, err := s.root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// readerWithContext ends a long copy when its context ends.
type readerWithContext struct {
	ctx context.Context
	r   io.Reader
}

func (r readerWithContext) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func noImage(ref string, err error) error {
	return &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoImage, Message: fmt.Sprintf("there is no image %q", ref),
		Hint: "see `grange image list`", Err: err}
}

func storeError(dir string, err error) error {
	return &farm.Error{Kind: farm.Internal, Code: farm.CodeImageStore,
		Message: "image store " + dir + " cannot be used",
		Hint:    "check that the directory exists, belongs to the agent and is not damaged", Err: err}
}

// writeError distinguishes a full disk from other trouble; an error that says enough already is handed on.
func writeError(dir string, err error) error {
	var known *farm.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case full(err):
		return &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull,
			Message: "the file system of " + dir + " is full",
			Hint:    "free space there, remove unused images, or move the store", Err: err}
	}
	return storeError(dir, err)
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
