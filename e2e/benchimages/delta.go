package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/grange-project/grange/internal/chunk"
)

// delta is what a host with the first version gets of the next one.
type delta struct {
	Version string  `json:"version"` // upgraded in place, or rebuilt from scratch
	Format  string  `json:"format"`
	Chunks  int64   `json:"chunks"` // bytes on the way, packed, with the index
	Fixed   int64   `json:"fixed"`  // the same with fixed chunks of 4 MiB, each packed, without an index
	Ratio   float64 `json:"ratio"`
}

const fixedSize = 4 << 20

func (o options) deltas(ctx context.Context, r *result) error {
	for _, format := range []string{"raw", "qcow2"} {
		first := filepath.Join(o.images, "first."+format)
		old, err := cut(first)
		if err != nil {
			return err
		}
		had := map[chunk.Sum]bool{}
		if err := fixed(first, func(b []byte) error { had[sha256.Sum256(b)] = true; return nil }); err != nil {
			return err
		}
		for _, version := range []string{"upgraded", "rebuilt"} {
			if err := ctx.Err(); err != nil {
				return err
			}
			d := delta{Version: version, Format: format}
			next := filepath.Join(o.images, version+"."+format)
			if d.Chunks, err = byChunks(next, old); err != nil {
				return err
			}
			if d.Fixed, err = byFixed(next, had); err != nil {
				return err
			}
			d.Ratio = float64(d.Chunks) / float64(d.Fixed)
			fmt.Printf("%s, %s: %d MB in chunks, %d MB in fixed ones\n", version, format, d.Chunks/1e6, d.Fixed/1e6)
			r.Deltas = append(r.Deltas, d)
			r.DeltaVsFixed = max(r.DeltaVsFixed, d.Ratio)
		}
	}
	return nil
}

func cut(name string) (*chunk.Index, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return chunk.Cut(f)
}

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// byChunks is what comes to a host that has a file, as hosts ask for it: of each piece what is not here.
func byChunks(name string, old *chunk.Index) (int64, error) {
	x, err := cut(name)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	l, here := chunk.Lay(x), map[int]bool{}
	for _, found := range chunk.Reuse(l, []*chunk.Index{old}) {
		here[found.Chunk] = true
	}
	sent, b := counter(len(x.Marshal())), make([]byte, chunk.MaxSize)
	for _, piece := range l.Pieces {
		err := chunk.Pack(&sent, func(to io.Writer) error {
			for _, i := range piece {
				if here[i] {
					continue
				}
				b := b[:l.Chunks[i].Size]
				if _, err := f.ReadAt(b, l.Offsets[i]); err != nil {
					return err
				}
				if _, err := to.Write(b); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return int64(sent), nil
}

// byFixed is the same with fixed chunks.
func byFixed(name string, had map[chunk.Sum]bool) (int64, error) {
	var sent counter
	seen := map[chunk.Sum]bool{}
	err := fixed(name, func(b []byte) error {
		sum := chunk.Sum(sha256.Sum256(b))
		if had[sum] || seen[sum] {
			return nil
		}
		seen[sum] = true
		return chunk.Pack(&sent, func(to io.Writer) error { _, err := to.Write(b); return err })
	})
	return int64(sent), err
}

func fixed(name string, each func([]byte) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, fixedSize)
	for {
		n, err := io.ReadFull(f, b)
		if n > 0 {
			if err := each(b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
