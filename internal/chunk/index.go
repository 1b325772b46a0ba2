// Package chunk cuts files by their content, describes them by an index of what they were cut into, and finds of what
// files that are here a wanted one can be made. It is pure: whoever calls it reads and writes.
package chunk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Bounds of chunks. Content decides where a chunk ends, so that what two files share is cut alike wherever it lies.
// Disks change by blocks of 4 KiB and files: of a Debian that was upgraded in place, chunks of 16 KiB on average bring
// 98 MB, of 32 KiB 103, of 256 KiB 110 to 120, and a quarter to a half of what fixed chunks of 4 MiB bring.
const (
	MinSize     = 4 << 10
	averageBits = 14
	MaxSize     = 128 << 10

	maxZeros = math.MaxUint32 &^ (MinSize - 1) // bytes of one run of zeros
)

// Sum is the SHA-256 of some bytes.
type Sum [sha256.Size]byte

// ParseSum reads "sha256:" and 64 hex digits.
func ParseSum(text string) (s Sum, err error) {
	digits, found := strings.CutPrefix(text, "sha256:")
	n, err := hex.Decode(s[:], []byte(digits[:min(len(digits), 2*len(s))]))
	if !found || err != nil || n != len(s) || len(digits) != 2*n || strings.ToLower(digits) != digits {
		return s, fmt.Errorf("invalid digest %q: expected sha256: and 64 of 0-9 and a-f", text)
	}
	return s, nil
}

func (s Sum) String() string { return "sha256:" + hex.EncodeToString(s[:]) }

// Chunk is a part of a file.
type Chunk struct {
	Sum  Sum // the zero value: nothing but zeros, any number of them
	Size uint32
}

// Zeros reports whether the chunk is a run of zeros, which a file needs no bytes for.
func (c Chunk) Zeros() bool { return c.Sum == Sum{} }

// Index is what a file consists of.
type Index struct {
	File   Sum // of the whole file
	Size   int64
	Chunks []Chunk
}

// An index in bytes: magic, digest and size of the file, number of chunks, and digest and size of each.
const (
	magic     = "grange-chunks 1\n"
	headSize  = len(magic) + sha256.Size + 8 + 4
	entrySize = sha256.Size + 4

	// MaxBytes bounds an index in bytes: a file of some 100 GiB without a hole.
	MaxBytes = 256 << 20
)

// Marshal returns the index in bytes. Its digest is that of these.
func (x *Index) Marshal() []byte {
	out := make([]byte, 0, headSize+entrySize*len(x.Chunks))
	out = append(append(out, magic...), x.File[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(x.Size))
	out = binary.BigEndian.AppendUint32(out, uint32(len(x.Chunks)))
	for _, c := range x.Chunks {
		out = binary.BigEndian.AppendUint32(append(out, c.Sum[:]...), c.Size)
	}
	return out
}

// Unmarshal reads an index, from anybody. What it returns describes a file of Size bytes, whose chunks are within
// bounds.
func Unmarshal(text []byte) (*Index, error) {
	rest, ok := bytes.CutPrefix(text, []byte(magic))
	if !ok || len(text) < headSize || len(text) > MaxBytes {
		return nil, errors.New("no index of chunks")
	}
	x := &Index{File: Sum(rest[:sha256.Size])}
	rest = rest[sha256.Size:]
	size, n := binary.BigEndian.Uint64(rest), int(binary.BigEndian.Uint32(rest[8:]))
	if rest = rest[12:]; len(rest) != n*entrySize || size > math.MaxInt64 {
		return nil, errors.New("an index of chunks that is cut off")
	}
	x.Size, x.Chunks = int64(size), make([]Chunk, n)
	var sum int64
	for i := range x.Chunks {
		c := Chunk{Sum(rest[:sha256.Size]), binary.BigEndian.Uint32(rest[sha256.Size:])}
		if c.Size == 0 || c.Size > MaxSize && !c.Zeros() {
			return nil, fmt.Errorf("chunk %d of an index has %d bytes", i, c.Size)
		}
		x.Chunks[i], rest = c, rest[entrySize:]
		sum += int64(c.Size)
	}
	if sum != x.Size {
		return nil, fmt.Errorf("the chunks of an index have %d bytes, and its file %d", sum, x.Size)
	}
	return x, nil
}

// Layout is where the chunks of an index lie.
type Layout struct {
	*Index
	Offsets []int64
	// Pieces are what is fetched at a time: chunks that follow each other, each different one once, without zeros.
	Pieces [][]int
	// Same are the other places of a chunk, by the one that is in a piece.
	Same map[int][]int
	// Bytes are those of all pieces: what the file has besides zeros and repetitions.
	Bytes int64
}

// Sizes of pieces: there are some hundreds of a file, so that many hosts have something to give each other early.
const (
	wantedPieces = 512
	minPiece     = 256 << 10
	maxPiece     = 8 << 20
)

// Lay returns the layout of an index, which is the same wherever it is made.
func Lay(x *Index) *Layout {
	l := &Layout{Index: x, Offsets: make([]int64, len(x.Chunks)), Same: map[int][]int{}}
	first := make(map[Sum]int, len(x.Chunks))
	var at int64
	for i, c := range x.Chunks {
		l.Offsets[i] = at
		at += int64(c.Size)
		if c.Zeros() {
			continue
		}
		if f, again := first[c.Sum]; again && x.Chunks[f].Size == c.Size {
			l.Same[f] = append(l.Same[f], i)
			continue
		}
		first[c.Sum] = i
		l.Bytes += int64(c.Size)
	}
	each := min(max(l.Bytes/wantedPieces, minPiece), maxPiece)
	var piece []int
	var size int64
	for i, c := range x.Chunks {
		if c.Zeros() || first[c.Sum] != i {
			continue
		}
		piece = append(piece, i)
		if size += int64(c.Size); size >= each {
			l.Pieces, piece, size = append(l.Pieces, piece), nil, 0
		}
	}
	if len(piece) > 0 {
		l.Pieces = append(l.Pieces, piece)
	}
	return l
}
