package transfer

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
)

// Location is where a file is to be had.
type Location struct {
	Index chunk.Sum // zero: the source is still cutting the file
	Peers []Peer
	Next  time.Duration // after which to ask again
}

// File is one that is here, whole and verified.
type File struct {
	Sum  chunk.Sum
	Size int64
	Path string
}

// Options is what a fetcher is made of.
type Options struct {
	Dir    string // where files are that come, and indexes of those that are here
	Source Requester
	// Locate asks the server where a file is. It is told what this host holds of it by then.
	Locate func(ctx context.Context, digest chunk.Sum) (Location, error)
	Dial   func(ctx context.Context, p Peer) (net.Conn, error)
	Files  func() []File // those that are here, the newest first; nil: none
	Rate   *Rate         // of what comes
	Log    *slog.Logger
	// Stalled is after which time without a byte a transfer fails; 0: five minutes.
	Stalled time.Duration
}

// Fetcher brings files to this host, each once at a time.
type Fetcher struct {
	Options
	dir *os.Root

	mu        sync.Mutex
	transfers map[chunk.Sum]*transfer
	indexes   map[chunk.Sum]*Indexed // of files that are here, some
}

const (
	partialDir = "partial"
	indexDir   = "index"
	indexFile  = "index"
	peersFile  = "peers.json"

	defaultStalled = 5 * time.Minute
	// partialAge is how long a file is kept that nobody went on with.
	partialAge  = 7 * 24 * time.Hour
	mostIndexes = 8
)

// NewFetcher returns a fetcher that keeps its files in a directory, and removes what is old there.
func NewFetcher(o Options) (*Fetcher, error) {
	if o.Stalled == 0 {
		o.Stalled = defaultStalled
	}
	if o.Files == nil {
		o.Files = func() []File { return nil }
	}
	for _, d := range []string{partialDir, indexDir} {
		if err := os.MkdirAll(filepath.Join(o.Dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	dir, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, err
	}
	f := &Fetcher{Options: o, dir: dir, transfers: map[chunk.Sum]*transfer{}, indexes: map[chunk.Sum]*Indexed{}}
	return f, f.sweep()
}

// Fetch returns a file with a digest, once all of it is here and was verified. Callers that want one file at the same
// time wait for one transfer, which ends when the last of them leaves; what came then is kept. The file stays until
// Forget. report may be nil. Errors: CodeStalled, CodeMismatch, farm.CodeDiskFull, those of Locate.
func (f *Fetcher) Fetch(ctx context.Context, digest chunk.Sum, report func(Progress)) (*os.File, error) {
	if report == nil {
		report = func(Progress) {}
	}
	t := f.join(digest)
	defer f.leave(t)
	for {
		p, changed := t.now()
		report(p)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.ended:
			if t.err != nil {
				return nil, t.err
			}
			return f.dir.Open(path.Join(t.dirName(), dataFile))
		case <-changed:
		}
	}
}

// join adds a waiter to the transfer of a file, and begins it if there is none.
func (f *Fetcher) join(digest chunk.Sum) *transfer {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.transfers[digest]
	if t == nil {
		ctx, cancel := context.WithCancel(context.Background())
		t = &transfer{Fetcher: f, digest: digest, cancel: cancel, ended: make(chan struct{}),
			changed: make(chan struct{}), progress: Progress{Step: "asking where the image is"}}
		f.transfers[digest] = t
		go t.do(ctx)
	}
	t.waiters++
	return t
}

// leave takes a waiter away. The last one ends the transfer.
func (f *Fetcher) leave(t *transfer) {
	f.mu.Lock()
	t.waiters--
	last := t.waiters == 0
	if last && f.transfers[t.digest] == t {
		delete(f.transfers, t.digest) // the next one begins anew, when this one has let go of the directory
	}
	f.mu.Unlock()
	if last {
		t.cancel()
		<-t.ended
	}
}

// Stats are those of a transfer that is under way.
func (f *Fetcher) Stats(digest chunk.Sum) (s Stats, ok bool) {
	f.mu.Lock()
	t := f.transfers[digest]
	f.mu.Unlock()
	if t == nil {
		return s, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats, true
}

// Forget removes what is kept of a file that Fetch returned. Its index stays, for those who ask this host for the file
// and for the next version of it.
func (f *Fetcher) Forget(digest chunk.Sum) error { return f.dir.RemoveAll(partialName(digest)) }

func partialName(digest chunk.Sum) string {
	return path.Join(partialDir, digest.String()[len("sha256:"):])
}
func indexName(digest chunk.Sum) string { return path.Join(indexDir, digest.String()[len("sha256:"):]) }

// Wanted returns the files that are on their way.
func (f *Fetcher) Wanted() (all []chunk.Sum) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for digest := range f.transfers {
		all = append(all, digest)
	}
	return all
}

// Holds returns the files that this host can give to others, whole.
func (f *Fetcher) Holds() (all []chunk.Sum) {
	for _, file := range f.Files() {
		if _, err := f.dir.Stat(indexName(file.Sum)); err == nil {
			all = append(all, file.Sum)
		}
	}
	return all
}

// Open returns what is here of a file, for others. Error: CodeUnknown.
func (f *Fetcher) Open(digest chunk.Sum) (*Blob, error) {
	f.mu.Lock()
	t := f.transfers[digest]
	f.mu.Unlock()
	if t != nil {
		if b := t.open(); b != nil {
			return b, nil
		}
	}
	for _, file := range f.Files() {
		if file.Sum != digest {
			continue
		}
		x := f.index(digest)
		if x == nil {
			break
		}
		data, err := os.Open(file.Path)
		if err != nil {
			return nil, err
		}
		return &Blob{x, data, data, x.all()}, nil
	}
	return nil, errUnknown(digest)
}

// index returns that of a file that is here whole, nil if it is not known.
func (f *Fetcher) index(digest chunk.Sum) *Indexed {
	f.mu.Lock()
	x := f.indexes[digest]
	f.mu.Unlock()
	if x != nil {
		return x
	}
	text, err := f.dir.ReadFile(indexName(digest))
	if err == nil {
		x, err = NewIndexed(text)
	}
	if err != nil || x.Layout.File != digest {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for other := range f.indexes {
		if len(f.indexes) < mostIndexes {
			break
		}
		delete(f.indexes, other)
	}
	f.indexes[digest] = x
	return x
}

// keepIndex keeps an index of a file that is here whole, and forgets those of files that are not.
func (f *Fetcher) keepIndex(x *Indexed) error {
	if err := f.write(indexName(x.Layout.File), x.Text); err != nil {
		return err
	}
	here := map[string]bool{path.Base(indexName(x.Layout.File)): true}
	for _, file := range f.Files() {
		here[path.Base(indexName(file.Sum))] = true
	}
	entries, err := fs.ReadDir(f.dir.FS(), indexDir)
	for _, e := range entries {
		if info, gone := e.Info(); gone == nil && !here[e.Name()] && time.Since(info.ModTime()) > partialAge {
			err = errors.Join(err, f.dir.Remove(path.Join(indexDir, e.Name())))
		}
	}
	return err
}

// write replaces a small file. A crash leaves the old one or the new one, or one that its reader finds damaged.
func (f *Fetcher) write(name string, text []byte) error {
	if err := f.dir.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return f.dir.Rename(name+".new", name)
}

// sweep removes files that nobody has gone on with for long.
func (f *Fetcher) sweep() error {
	entries, err := fs.ReadDir(f.dir.FS(), partialDir)
	for _, e := range entries {
		if info, gone := e.Info(); gone == nil && time.Since(info.ModTime()) > partialAge {
			err = errors.Join(err, f.dir.RemoveAll(path.Join(partialDir, e.Name())))
		}
	}
	return err
}

// lock makes the directory of a transfer and keeps other processes, and the transfer before in this one, out of it.
func (f *Fetcher) lock(ctx context.Context, name string) (dir *os.Root, unlock func(), err error) {
	if err := f.dir.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	if dir, err = f.dir.OpenRoot(name); err != nil {
		return nil, nil, err
	}
	handle, err := dir.Open(".")
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	unlock = func() { handle.Close(); dir.Close() }
	for {
		err = syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			now := time.Now()
			f.dir.Chtimes(name, now, now) // sweep goes by it
			return dir, unlock, nil
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ours makes errors of files those that people can read.
func (f *Fetcher) ours(err error) error {
	own := new(farm.Error)
	switch {
	case err == nil || errors.As(err, &own) || errors.Is(err, context.Canceled):
		return err
	case isFull(err):
		return errFull(f.Dir, err)
	}
	return &farm.Error{Kind: farm.Internal, Code: farm.CodeImageStore, Err: err,
		Message: "files for images cannot be kept in " + f.Dir,
		Hint:    "check that the directory exists, belongs to the agent and is not damaged"}
}
