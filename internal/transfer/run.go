package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer/swarm"
)

// transfer is one file on its way, whoever waits for it.
type transfer struct {
	*Fetcher
	digest  chunk.Sum
	waiters int // below the fetcher's lock
	cancel  func()
	ended   chan struct{}
	err     error // once it has ended

	mu       sync.Mutex
	progress Progress
	changed  chan struct{}
	stats    Stats
	indexed  *Indexed // nil: not here yet
	part     *partial

	peers map[string]*remotePeer // by host
	last  atomic.Int64           // when something came, in nanoseconds since 1970
	why   error                  // nothing comes, as far as is known
}

type remotePeer struct {
	*peerClient
	address string
	looking bool // its holdings are being read
}

const (
	pollEvery   = time.Second
	locateAgain = 3 * time.Second // when the server does not answer
	reportEvery = 200 * time.Millisecond
)

func (t *transfer) dirName() string { return partialName(t.digest) }

func (t *transfer) do(ctx context.Context) {
	began := time.Now()
	err := t.ours(t.run(ctx))
	t.mu.Lock()
	t.stats.Took = time.Since(began)
	s := t.stats
	t.mu.Unlock()
	t.err = err
	if err == nil {
		t.Log.Info("image fetched", "digest", t.digest, "here", s.Here, "from_hosts", s.Peers, "from_server", s.Source,
			"received", s.Received, "took", s.Took.Round(time.Millisecond))
	}
	close(t.ended)
}

// now returns the progress, and what is closed when it changes.
func (t *transfer) now() (Progress, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.progress, t.changed
}

func (t *transfer) report(p Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p != t.progress {
		t.progress = p
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// open returns what is here by now, for others; nil: nothing.
func (t *transfer) open() *Blob {
	t.mu.Lock()
	x, part := t.indexed, t.part
	t.mu.Unlock()
	if part == nil {
		return nil
	}
	data, err := t.dir.Open(path.Join(t.dirName(), dataFile))
	if err != nil {
		return nil
	}
	return &Blob{x, data, data, part.bits()}
}

// run brings the file, step by step. Each step finds what an earlier run left of it.
func (t *transfer) run(ctx context.Context) error {
	dir, unlock, err := t.lock(ctx, t.dirName())
	if err != nil {
		return err
	}
	defer unlock()
	t.peers = map[string]*remotePeer{}
	defer func() {
		for _, p := range t.peers {
			p.close()
		}
	}()
	t.came()
	x, err := t.findIndex(ctx, dir)
	if err != nil {
		return err
	}
	part, err := openPartial(dir, x.Layout)
	if err != nil {
		return err
	}
	defer part.file.Close()
	total := farm.Bytes(x.Layout.Bytes)
	if err := part.look(ctx, func(done int64) {
		t.report(Progress{Step: "checking what came before", Done: farm.Bytes(done), Total: total})
	}); err != nil {
		return err
	}
	if err := t.reuse(ctx, part); err != nil {
		return err
	}
	if err := t.room(part); err != nil {
		return err
	}
	t.mu.Lock()
	t.stats.Here = farm.Bytes(part.done())
	t.indexed, t.part = x, part
	t.mu.Unlock()
	if err := t.swarm(ctx, x, part); err != nil {
		return err
	}
	err = part.whole(ctx, func(done int64) {
		t.report(Progress{Step: "verifying", Done: farm.Bytes(done), Total: farm.Bytes(x.Layout.Size)})
	})
	if farm.IsCode(err, CodeMismatch) {
		return errors.Join(err, t.dir.RemoveAll(t.dirName())) // nothing tells which part is wrong
	}
	if err != nil {
		return err
	}
	return t.keepIndex(x)
}

func (t *transfer) came() { t.last.Store(time.Now().UnixNano()) }

// stalled returns an error when nothing has come for too long.
func (t *transfer) stalled() error {
	if silent := time.Since(time.Unix(0, t.last.Load())); silent > t.Stalled {
		return errStalled(t.digest, t.Stalled, t.why)
	}
	return nil
}

// findIndex returns the index of the file: of an earlier run, of a peer, or of the source.
func (t *transfer) findIndex(ctx context.Context, dir *os.Root) (*Indexed, error) {
	if text, err := dir.ReadFile(indexFile); err == nil {
		if x, err := NewIndexed(text); err == nil && x.Layout.File == t.digest {
			t.knownPeers(dir)
			return x, nil
		}
	}
	for {
		l, err := t.Locate(ctx, t.digest)
		switch {
		case farm.IsKind(err, farm.NotFound) || farm.IsKind(err, farm.Denied):
			return nil, err
		case err != nil:
			t.wait("the server does not answer", err)
		case l.Index == chunk.Sum{}:
			t.came() // it works on it
			t.wait("the server is cutting the image", nil)
		default:
			t.located(l)
			if x := t.readIndex(ctx, l.Index); x != nil {
				return x, t.write(path.Join(t.dirName(), indexFile), x.Text)
			}
			t.wait("nobody gives the index of the image", t.why)
		}
		if err := errors.Join(ctx.Err(), t.stalled()); err != nil {
			return nil, err
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait reports that nothing comes, and why.
func (t *transfer) wait(note string, why error) {
	t.why = why
	p, _ := t.now()
	p.Note = note
	t.report(p)
}

// located takes over where the file is.
func (t *transfer) located(l Location) {
	for _, p := range l.Peers {
		if old := t.peers[p.Host]; old != nil && old.address == p.Address {
			continue
		} else if old != nil {
			old.close()
		}
		t.peers[p.Host] = &remotePeer{peerClient: newPeerClient(p, t.Dial), address: p.Address}
	}
	if text, err := json.Marshal(l); err == nil { // for a run that the server does not answer
		t.write(path.Join(t.dirName(), peersFile), text)
	}
}

// knownPeers takes over where the file was when an earlier run asked.
func (t *transfer) knownPeers(dir *os.Root) {
	var l Location
	if text, err := dir.ReadFile(peersFile); err == nil && json.Unmarshal(text, &l) == nil {
		t.located(l)
	}
}

// readIndex reads the index from some peers, and then from the source; nil: nobody gives it.
func (t *transfer) readIndex(ctx context.Context, sum chunk.Sum) *Indexed {
	t.report(Progress{Step: "reading the index"})
	var from []Requester
	for _, p := range t.peers {
		if from = append(from, p); len(from) == 3 {
			break
		}
	}
	for _, r := range append(from, t.Source) {
		x, err := readIndex(ctx, r, t.digest, sum)
		if err == nil && x.Layout.File == t.digest {
			t.came()
			return x
		}
		t.why = err
	}
	return nil
}

// reuse copies what files that are here have of the wanted one. Files without an index are cut, as long as that is
// little work beside the transfer.
func (t *transfer) reuse(ctx context.Context, part *partial) error {
	l := part.layout
	if part.done() == l.Bytes {
		return nil
	}
	budget := 4 * max(l.Size, 64<<20)
	var files []File
	var here []*chunk.Index
	for _, file := range t.Files() {
		x := t.index(file.Sum)
		if x == nil && file.Size >= chunk.MaxSize && file.Size <= budget {
			budget -= file.Size
			t.report(Progress{Step: "looking at images that are here", Total: farm.Bytes(l.Bytes)})
			x = t.cut(ctx, file)
		}
		if x != nil {
			files, here = append(files, file), append(here, x.Layout.Index)
		}
	}
	return t.copy(ctx, part, files, chunk.Reuse(l, here))
}

// cut makes the index of a file that came otherwise; nil: it cannot be read, or is not what it should be.
func (t *transfer) cut(ctx context.Context, file File) *Indexed {
	f, err := os.Open(file.Path)
	if err != nil {
		return nil
	}
	defer f.Close()
	x, err := chunk.Cut(&ratedReader{ctx: ctx, from: f})
	if err != nil || x.File != file.Sum {
		return nil
	}
	text := x.Marshal()
	if t.write(indexName(file.Sum), text) != nil {
		return nil
	}
	t.came()
	return &Indexed{chunk.Lay(x), sumOf(text), text}
}

// copy copies chunks from files that are here. What is not what the index says is fetched.
func (t *transfer) copy(ctx context.Context, part *partial, files []File, found []chunk.Found) error {
	buffer := make([]byte, chunk.MaxSize)
	var open *os.File
	number := -1
	defer func() { open.Close() }()
	for _, f := range found {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.File != number {
			open.Close()
			number = f.File
			open, _ = os.Open(files[number].Path) // nil reads nothing
		}
		c := part.layout.Chunks[f.Chunk]
		if n, _ := open.ReadAt(buffer[:c.Size], f.At); n < int(c.Size) || !c.Check(buffer[:c.Size]) {
			continue
		}
		if err := part.put(f.Chunk, buffer[:c.Size]); err != nil {
			return err
		}
		t.report(Progress{Step: "copying from images that are here",
			Done: farm.Bytes(part.done()) &^ (16<<20 - 1), Total: farm.Bytes(part.layout.Bytes)})
	}
	for n := range part.layout.Pieces {
		part.markPiece(n)
	}
	t.came()
	return nil
}

// room refuses a file that the file system has no space for.
func (t *transfer) room(part *partial) error {
	const spare = 64 << 20
	var s syscall.Statfs_t
	if err := syscall.Statfs(t.Dir, &s); err != nil {
		return err
	}
	if free, need := int64(s.Bavail)*s.Bsize, part.layout.Bytes-part.done(); need > 0 && free < need+spare {
		return errFull(t.Dir, fmt.Errorf("%v are missing, and %v are free", farm.Bytes(need), farm.Bytes(free)))
	}
	return nil
}

// swarm brings the pieces that are not here.
func (t *transfer) swarm(ctx context.Context, x *Indexed, part *partial) error {
	ctx, cancel := context.WithCancel(ctx)
	now := time.Now()
	here := make([]bool, len(x.Layout.Pieces))
	for i := range here {
		here[i] = part.held.Has(i)
	}
	r := &round{transfer: t, x: x, part: part, ctx: ctx, events: make(chan func()),
		state: swarm.New(here, now, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))}
	for host := range t.peers {
		r.state.Peer(host, nil)
	}
	err := r.loop()
	cancel()
	r.drain()
	return err
}
