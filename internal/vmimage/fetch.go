package vmimage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/reach"
)

// FetchOptions say what Fetch fetches, and what it must be.
type FetchOptions struct {
	Name   string // of the image
	Source string // as imagesource.Open reads it, or container.Parse

	// Sum is the checksum of the file at the source; "" when Sums says it, or nobody.
	Sum string
	// Sums is the source of a list of checksums, which must name the file, and Signature that of its detached
	// OpenPGP signature. Without Signature the list is clear-signed if there is a Keyring, and else taken as it is.
	Sums, Signature string
	Keyring         []byte

	// Resolve returns the path to open in place of a container image's that is a path: it has no symbolic links. nil:
	// the path is opened as it is, and links are followed.
	Resolve func(path string) (string, error)

	Outside *reach.Outside // bounds which servers are reached, also by redirects; nil: all may be

	Most farm.Bytes // that may come; 0: what is free

	Progress func(Progress) // may be nil
}

// Progress is how far a fetch has come.
type Progress struct {
	Step        string // what is being done: "download", "verify", "import"
	Done, Total farm.Bytes
	Note        string // why nothing comes at the moment
}

// String says it in a few words, which change at every tenth.
func (p Progress) String() string {
	switch {
	case p.Note != "":
		return p.Note
	case p.Total > 0:
		return fmt.Sprintf("%s, %d %% of %v", p.Step, 10*int(10*float64(p.Done)/float64(p.Total)), p.Total)
	}
	return p.Step
}

const (
	partialDir = "partial"
	// partialAge is how long a download that nobody continued is kept.
	partialAge = 7 * 24 * time.Hour
	// mostList bounds lists of checksums, signatures and keyrings.
	mostList = 4 << 20
)

// Fetch brings an image from its source into the store and names it. A download that breaks off is continued, by a
// later Fetch too, whatever ended this one. Callers that want one source at the same time wait for one download.
// Errors: those of Import, imagesource.CodeSource and its like.
func (s *Store) Fetch(ctx context.Context, o FetchOptions) (Image, error) {
	if err := CheckName(o.Name); err != nil {
		return Image{}, err
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if err := o.check(); err != nil {
		return Image{}, err
	}
	source, r, err := openSource(o)
	if err != nil {
		return Image{}, err
	}
	f := &fetch{FetchOptions: o, store: s, source: source, dir: partialName(o.Source)}
	if source == nil {
		return f.run(ctx, func(dir *os.Root) (Image, error) { return f.buildRoot(ctx, r, dir) })
	}
	if f.sum, f.signedBy, err = o.sum(ctx, source); err != nil {
		return Image{}, err
	}
	return f.run(ctx, func(dir *os.Root) (Image, error) { return f.download(ctx, dir) })
}

// fetch is one call of Store.Fetch.
type fetch struct {
	FetchOptions
	store    *Store
	source   imagesource.Source // nil: a container image that is not one file
	sum      imagesource.Sum    // "" if nothing was said
	signedBy string
	dir      string // of the download, below the store
}

// run has bring make the image, in the directory of the download, unless somebody else does.
func (f *fetch) run(ctx context.Context, bring func(dir *os.Root) (Image, error)) (Image, error) {
	s, began := f.store, time.Now()
	unlock, waited, err := f.lock(ctx)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if waited {
		if i, err := f.broughtSince(began); err == nil {
			s.root.RemoveAll(f.dir)
			return s.name(i, f.Name)
		}
	}
	dir, err := s.root.OpenRoot(f.dir)
	if err != nil {
		return Image{}, storeError(s.dir, err)
	}
	defer dir.Close()
	i, err := bring(dir)
	if err == nil || !resumable(err) {
		s.root.RemoveAll(f.dir)
	}
	return i, err
}

// resumable reports whether what was downloaded is worth keeping after err.
func resumable(err error) bool {
	var known *farm.Error
	return ended(err) || errors.As(err, &known) && (known.Kind == farm.Unavailable || known.Kind == farm.NoCapacity)
}

func (f *fetch) download(ctx context.Context, dir *os.Root) (Image, error) {
	s := f.store
	limit, err := f.limit(dir)
	if err != nil {
		return Image{}, err
	}
	came := s.pace.Follow(ctx)
	load := imagesource.Download{Source: f.source, Dir: dir, Limit: int64(limit),
		Report: func(done, total int64, note string) {
			came(done)
			f.Progress(Progress{"download", farm.Bytes(done), farm.Bytes(max(total, 0)), note})
		}}
	file, info, err := load.Run(ctx)
	if err != nil {
		return Image{}, writeError(s.dir, err)
	}
	defer file.Close()
	if f.sum == "" {
		f.sum = info.Sum
	}
	if f.sum != "" {
		f.Progress(Progress{Step: "verify"})
		if err := f.sum.Check(readerWithContext{ctx, file}, info.Name); err != nil {
			return Image{}, err
		}
	}
	return f.keep(ctx, file)
}

// keep makes an image of the downloaded file.
func (f *fetch) keep(ctx context.Context, file *os.File) (Image, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return Image{}, storeError(f.store.dir, err)
	}
	d, err := f.store.newDraft()
	if err != nil {
		return Image{}, err
	}
	defer d.discard()
	f.Progress(Progress{Step: "import"})
	own := path.Join(f.dir, imagesource.DataFile)
	err = d.importDisk(ctx, input{file, size, own}, func(done, total farm.Bytes) {
		f.Progress(Progress{Step: "import", Done: done, Total: total})
	})
	if err != nil {
		return Image{}, err
	}
	if container.Is(f.Source) && d.image.Kind != Root {
		return Image{}, badImage(f.Source+" is not a SIF file", "see what it is with `file`", nil)
	}
	d.image.Description, d.image.Source = "fetched from "+f.Source, f.Source
	d.image.SourceSum, d.image.SignedBy = string(f.sum), f.signedBy
	return d.commit(f.Name)
}

// limit is how large a download may be: it leaves some room, and what came already needs none.
func (f *fetch) limit(dir *os.Root) (farm.Bytes, error) {
	left, err := free(f.store)
	if err != nil {
		return 0, storeError(f.store.dir, err)
	}
	if info, err := dir.Stat(imagesource.DataFile); err == nil {
		left += farm.Bytes(info.Size())
	}
	if left < spare {
		return 0, writeError(f.store.dir, syscall.ENOSPC)
	}
	if left -= spare; f.Most > 0 {
		return min(left, f.Most), nil
	}
	return left, nil
}

// check refuses what would look as if it vouched for the file, and would not be looked at.
func (o FetchOptions) check() error {
	const hint = "give a checksum; or a list of checksums, with the keyring and the signature if it is signed"
	switch {
	case o.Sum != "" && (o.Sums+o.Signature != "" || o.Keyring != nil):
		return badImage("there is a checksum, and a list of checksums or a signature beside it", hint, nil)
	case o.Sums == "" && (o.Signature != "" || o.Keyring != nil):
		return badImage("a signature is that of a list of checksums, and there is none", hint, nil)
	case o.Signature != "" && o.Keyring == nil:
		return badImage("there is no keyring to verify the signature with", hint, nil)
	}
	return nil
}

// sum is the checksum that the file must have, "" if nothing was said, and who signed it.
func (o FetchOptions) sum(ctx context.Context, source imagesource.Source) (sum imagesource.Sum, by string, err error) {
	if o.Sum != "" {
		sum, err = imagesource.ParseSum(o.Sum)
		return sum, "", err
	}
	if o.Sums == "" {
		return "", "", nil
	}
	info, err := source.Stat(ctx)
	if err != nil {
		return "", "", err
	}
	list, err := o.readList(ctx, o.Sums)
	if err != nil {
		return "", "", err
	}
	if o.Keyring != nil {
		var signature []byte
		if o.Signature != "" {
			if signature, err = o.readList(ctx, o.Signature); err != nil {
				return "", "", err
			}
		}
		if list, by, err = imagesource.VerifySignature(list, signature, o.Keyring, time.Now()); err != nil {
			return "", "", err
		}
	}
	sum, err = imagesource.FindSum(string(list), info.Name)
	return sum, by, err
}

// readList reads a small file of a source.
func (o FetchOptions) readList(ctx context.Context, ref string) ([]byte, error) {
	source, err := imagesource.Open(ref, o.Outside)
	if err != nil {
		return nil, err
	}
	return imagesource.ReadSmall(ctx, source, mostList)
}

func partialName(source string) string {
	return path.Join(partialDir, fmt.Sprintf("%x", sha256.Sum256([]byte(source)))[:32])
}

// lock makes the directory of the download, and waits while somebody else is at it.
func (f *fetch) lock(ctx context.Context) (unlock func(), waited bool, err error) {
	s := f.store
	for {
		if err := s.root.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, waited, writeError(s.dir, err)
		}
		unlock, err = lockDir(s.root, f.dir)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, fs.ErrNotExist) {
			return nil, waited, storeError(s.dir, err)
		}
		if !waited {
			f.Progress(Progress{Step: "download", Note: "another download of " + f.Source + " is under way"})
			waited = true
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, waited, ctx.Err()
		}
	}
	now := time.Now()
	s.root.Chtimes(f.dir, now, now) // sweepPartial goes by it
	return unlock, waited, nil
}

// broughtSince finds what somebody else brought from the source meanwhile, if it was compared with the sum, too. Its
// record may be of an earlier time, when the same content came.
func (f *fetch) broughtSince(began time.Time) (Image, error) {
	images, err := f.store.List()
	for _, i := range images {
		if i.Source != f.Source || f.sum != "" && i.SourceSum != string(f.sum) {
			continue
		}
		if link, err := f.store.root.Lstat(path.Join("images", i.Name)); err == nil && !link.ModTime().Before(began) {
			return i, nil
		}
	}
	return Image{}, noImage(f.Source, err)
}

// lockDir locks a directory of the store. syscall.EWOULDBLOCK: somebody else has. fs.ErrNotExist: it was removed
// meanwhile, by who had it.
func lockDir(root *os.Root, name string) (unlock func(), err error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	locked, err := f.Stat()
	there, gone := root.Stat(name)
	if err = errors.Join(err, gone); err == nil && !os.SameFile(locked, there) {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// sweepPartial removes downloads that nobody has continued for long.
func sweepPartial(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), partialDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || time.Since(info.ModTime()) < partialAge {
			continue
		}
		unlock, err := lockDir(root, path.Join(partialDir, e.Name()))
		if err != nil {
			continue // somebody is at it
		}
		err = root.RemoveAll(path.Join(partialDir, e.Name()))
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
