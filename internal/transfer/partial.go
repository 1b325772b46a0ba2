package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/transfer/swarm"
)

// dataFile is the file that grows, in the directory of a transfer.
const dataFile = "data"

// partial is a file on its way. What of it is there is found by reading it: no record can be wrong about it.
type partial struct {
	layout *chunk.Layout
	file   *os.File

	mu    sync.Mutex
	has   []bool // by chunk, of those in pieces
	held  swarm.Bits
	bytes int64 // of the chunks that are here
}

// openPartial opens the file in a directory, or makes it: as large as it will be, and all holes.
func openPartial(dir *os.Root, l *chunk.Layout) (*partial, error) {
	f, err := dir.OpenFile(dataFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(l.Size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newPartial(l, f), nil
}

func newPartial(l *chunk.Layout, f *os.File) *partial {
	return &partial{layout: l, file: f, has: make([]bool, len(l.Chunks)), held: swarm.NewBits(len(l.Pieces))}
}

// look finds the chunks that are in the file. It reads no holes.
func (p *partial) look(ctx context.Context, report func(done int64)) error {
	buffer, data := make([]byte, chunk.MaxSize), p.dataFrom(0)
	for n, piece := range p.layout.Pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, i := range piece {
			begin := p.layout.Offsets[i]
			if data < begin {
				data = p.dataFrom(begin)
			}
			if data >= begin+int64(p.layout.Chunks[i].Size) {
				continue
			}
			if p.at(i, buffer) == nil {
				if err := p.repeat(i, buffer[:p.layout.Chunks[i].Size]); err != nil {
					return err
				}
				p.mark(i)
			}
		}
		p.markPiece(n)
		report(p.done())
	}
	return nil
}

// dataFrom returns where the next bytes lie that are no hole, at an offset or behind it.
func (p *partial) dataFrom(offset int64) int64 {
	at, err := unix.Seek(int(p.file.Fd()), offset, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return math.MaxInt64
	case err != nil: // a file system without holes
		return offset
	}
	return at
}

var errNotHere = errors.New("the chunk is not here")

// at reads chunk i of the file, if that is what lies there.
func (p *partial) at(i int, buffer []byte) error {
	c := p.layout.Chunks[i]
	data := buffer[:c.Size]
	if _, err := p.file.ReadAt(data, p.layout.Offsets[i]); err != nil {
		return err
	}
	if !c.Check(data) {
		return errNotHere
	}
	return nil
}

// put writes a chunk, which was checked, wherever the file has it.
func (p *partial) put(i int, data []byte) error {
	if _, err := p.file.WriteAt(data, p.layout.Offsets[i]); err != nil {
		return err
	}
	if err := p.repeat(i, data); err != nil {
		return err
	}
	p.mark(i)
	return nil
}

func (p *partial) repeat(i int, data []byte) error {
	for _, other := range p.layout.Same[i] {
		if _, err := p.file.WriteAt(data, p.layout.Offsets[other]); err != nil {
			return err
		}
	}
	return nil
}

func (p *partial) mark(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.has[i] {
		p.has[i] = true
		p.bytes += int64(p.layout.Chunks[i].Size)
	}
}

// missing returns the chunks of a piece that are not here.
func (p *partial) missing(piece int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []int
	for _, i := range p.layout.Pieces[piece] {
		if !p.has[i] {
			all = append(all, i)
		}
	}
	return all
}

// markPiece lets others have a piece that is whole, and reports whether it is.
func (p *partial) markPiece(piece int) bool {
	if len(p.missing(piece)) > 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held.Set(piece)
	return true
}

func (p *partial) done() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// bits returns which pieces are here.
func (p *partial) bits() swarm.Bits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(swarm.Bits{}, p.held...)
}

// whole compares the file with its digest, and brings it to the disk.
func (p *partial) whole(ctx context.Context, report func(done int64)) error {
	sum, buffer := sha256.New(), make([]byte, 1<<20)
	for at := int64(0); at < p.layout.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := p.file.ReadAt(buffer[:min(int64(len(buffer)), p.layout.Size-at)], at)
		if n == 0 {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		sum.Write(buffer[:n])
		at += int64(n)
		report(at)
	}
	if chunk.Sum(sum.Sum(nil)) != p.layout.File {
		return errMismatch(p.layout.File)
	}
	return p.file.Sync()
}
