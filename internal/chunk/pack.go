package chunk

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Chunks travel one behind the other as one zstd stream: new chunks resemble each other, and packed one by one they
// take a fifth more.
const window = 4 << 20

// Packing is for hosts that run jobs beside it: the fastest level, without threads of its own.
var packers = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil { // of options alone
		panic(err)
	}
	return e
}}

var unpackers = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err)
	}
	return d
}}

// Pack calls each with a writer that packs what is written to it into w.
func Pack(w io.Writer, each func(io.Writer) error) error {
	e := packers.Get().(*zstd.Encoder)
	defer packers.Put(e)
	e.Reset(w)
	defer e.Reset(nil)
	if err := each(e); err != nil {
		return err
	}
	return e.Close()
}

// ErrBadChunk is of bytes that are not the chunk that was asked for.
var ErrBadChunk = errors.New("bytes that are not the wanted chunk")

// Unpacker reads chunks that Pack packed, from anybody.
type Unpacker struct {
	decoder *zstd.Decoder
	from    brokenReader
	buffer  []byte
}

// NewUnpacker returns one that reads from r. It is closed after use.
func NewUnpacker(r io.Reader) *Unpacker {
	u := &Unpacker{decoder: unpackers.Get().(*zstd.Decoder), from: brokenReader{from: r}, buffer: make([]byte, MaxSize)}
	if err := u.decoder.Reset(&u.from); err != nil {
		u.from.err = err
	}
	return u
}

// Next returns the bytes of the next chunk, which must be c, until the next call. The error is ErrBadChunk where they
// are not, and that of the reader where there are none.
func (u *Unpacker) Next(c Chunk) ([]byte, error) {
	if c.Size > MaxSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrBadChunk, c.Size)
	}
	data := u.buffer[:c.Size]
	if _, err := io.ReadFull(u.decoder, data); err != nil {
		if u.from.err != nil {
			return nil, u.from.err
		}
		return nil, fmt.Errorf("%w: %w", ErrBadChunk, err)
	}
	if !c.Check(data) {
		return nil, ErrBadChunk
	}
	return data, nil
}

// Close gives back what the reader works with.
func (u *Unpacker) Close() {
	if u.decoder.Reset(nil) == nil {
		unpackers.Put(u.decoder)
	}
}

// brokenReader notes why there is no more to read, which a decoder does not hand on as it is.
type brokenReader struct {
	from io.Reader
	err  error
}

func (b *brokenReader) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil {
		b.err = err
		if errors.Is(err, io.EOF) {
			b.err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}
