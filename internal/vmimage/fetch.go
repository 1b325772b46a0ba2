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
	source, r, err := openSource(o.Source)
	if err != nil {
		return Image{}, err
	}
	if source == nil {
		return s.fetchContainer(ctx, o, r)
	}
	sum, by, err := o.sum(ctx, source)
	if err != nil {
		return Image{}, err
	}
	began := time.Now()
	dir, unlock, waited, err := s.partial(ctx, o)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	defer dir.Close()
	if waited {
		if i, err := s.fetchedSince(o.Source, sum, began); err == nil {
			s.root.RemoveAll(partialName(o.Source))
			return s.name(i, o.Name)
		}
	}
	i, err := s.download(ctx, o, source, sum, by, dir)
	if err == nil || !resumable(err) {
		s.root.RemoveAll(partialName(o.Source))
	}
	return i, err
}

// resumable reports whether what was downloaded is worth keeping after err.
func resumable(err error) bool {
	var known *farm.Error
	return ended(err) || errors.As(err, &known) && (known.Kind == farm.Unavailable || known.Kind == farm.NoCapacity)
}

func (s *Store) download(ctx context.Context, o FetchOptions, source imagesource.Source, sum imagesource.Sum, by string,
	dir *os.Root) (Image, error) {
	limit, err := s.fetchLimit(dir)
	if err != nil {
		return Image{}, err
	}
	load := imagesource.Download{Source: source, Dir: dir, Limit: int64(limit),
		Report: func(done, total int64, note string) {
			o.Progress(Progress{"download", farm.Bytes(done), farm.Bytes(max(total, 0)), note})
		}}
	f, info, err := load.Run(ctx)
	if err != nil {
		return Image{}, writeError(s.dir, err)
	}
	defer f.Close()
	if sum != "" {
		o.Progress(Progress{Step: "verify"})
		if err := sum.Check(readerWithContext{ctx, f}, info.Name); err != nil {
			return Image{}, err
		}
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Image{}, storeError(s.dir, err)
	}
	d, err := s.newDraft()
	if err != nil {
		return Image{}, err
	}
	defer d.discard()
	own := path.Join(partialName(o.Source), imagesource.DataFile)
	err = d.importDisk(ctx, input{f, size, own}, func(done, total farm.Bytes) {
		o.Progress(Progress{Step: "import", Done: done, Total: total})
	})
	if err != nil {
		return Image{}, err
	}
	if container.Is(o.Source) && d.image.Kind != Root {
		return Image{}, badImage(o.Source+" is no SIF file", "see what it is with `file`", nil)
	}
	d.image.Description, d.image.Source, d.image.SignedBy = "fetched from "+o.Source, o.Source, by
	d.image.SourceSum = string(sum)
	return d.commit(o.Name)
}

// fetchLimit is how large a download may be: it leaves some room, and what came already needs none.
func (s *Store) fetchLimit(dir *os.Root) (farm.Bytes, error) {
	free, err := freeSpace(s.dir)
	if err != nil {
		return 0, storeError(s.dir, err)
	}
	if info, err := dir.Stat(imagesource.DataFile); err == nil {
		free += farm.Bytes(info.Size())
	}
	if free < spare {
		return 0, writeError(s.dir, syscall.ENOSPC)
	}
	return free - spare, nil
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
	list, err := readList(ctx, o.Sums)
	if err != nil {
		return "", "", err
	}
	if o.Keyring != nil {
		var signature []byte
		if o.Signature != "" {
			if signature, err = readList(ctx, o.Signature); err != nil {
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
func readList(ctx context.Context, ref string) ([]byte, error) {
	source, err := imagesource.Open(ref)
	if err != nil {
		return nil, err
	}
	return imagesource.ReadSmall(ctx, source, mostList)
}

func partialName(source string) string {
	return path.Join(partialDir, fmt.Sprintf("%x", sha256.Sum256([]byte(source)))[:32])
}

// partial opens the directory of a download, and waits while somebody else is at it.
func (s *Store) partial(ctx context.Context, o FetchOptions) (dir *os.Root, unlock func(), waited bool, err error) {
	name := partialName(o.Source)
	for {
		if err := s.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, nil, waited, writeError(s.dir, err)
		}
		unlock, err = s.lockDir(name)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, waited, storeError(s.dir, err)
		}
		if !waited {
			o.Progress(Progress{Step: "download", Note: "another download of " + o.Source + " is under way"})
			waited = true
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil, waited, ctx.Err()
		}
	}
	now := time.Now()
	s.root.Chtimes(name, now, now) // sweepPartial goes by it
	if dir, err = s.root.OpenRoot(name); err != nil {
		unlock()
		return nil, nil, waited, storeError(s.dir, err)
	}
	return dir, unlock, waited, nil
}

// fetchedSince finds what somebody else brought from source meanwhile, if it was compared with sum, too.
func (s *Store) fetchedSince(source string, sum imagesource.Sum, since time.Time) (Image, error) {
	images, err := s.List()
	for _, i := range images {
		if i.Source == source && !i.Created.Before(since.Truncate(time.Second)) && (sum == "" || i.SourceSum == string(sum)) {
			return i, nil
		}
	}
	return Image{}, noImage(source, err)
}

// lockDir locks a directory of the store. syscall.EWOULDBLOCK: somebody else has. fs.ErrNotExist: it was removed
// meanwhile, by who had it.
func (s *Store) lockDir(name string) (unlock func(), err error) {
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	locked, err := f.Stat()
	there, gone := s.root.Stat(name)
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
func (s *Store) sweepPartial() error {
	entries, err := fs.ReadDir(s.root.FS(), partialDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || time.Since(info.ModTime()) < partialAge {
			continue
		}
		unlock, err := s.lockDir(path.Join(partialDir, e.Name()))
		if err != nil {
			continue // somebody is at it
		}
		err = s.root.RemoveAll(path.Join(partialDir, e.Name()))
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
