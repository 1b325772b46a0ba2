package chunk

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"

	"github.com/restic/chunker"
)

// polynomial of the rolling checksum. Whoever changes it, or the bounds, cuts everything anew.
const polynomial = chunker.Pol(0x3DA3358B4DC173)

var zeros [MaxSize]byte

func isZeros(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// Cut reads a file to its end and returns its index. Runs of zeros are one chunk, however long.
func Cut(r io.Reader) (*Index, error) {
	whole := sha256.New()
	c := chunker.NewWithBoundaries(io.TeeReader(r, whole), polynomial, MinSize, MaxSize)
	c.SetAverageBits(averageBits)
	x, buffer := &Index{}, make([]byte, MaxSize)
	for {
		part, err := c.Next(buffer)
		if errors.Is(err, io.EOF) {
			whole.Sum(x.File[:0])
			return x, nil
		}
		if err != nil {
			return nil, err
		}
		x.Size += int64(part.Length)
		x.add(part.Data)
	}
}

// add appends a chunk, or makes the run of zeros before it longer.
func (x *Index) add(data []byte) {
	size := uint32(len(data))
	if !isZeros(data) {
		x.Chunks = append(x.Chunks, Chunk{sha256.Sum256(data), size})
		return
	}
	if n := len(x.Chunks); n > 0 && x.Chunks[n-1].Zeros() && x.Chunks[n-1].Size <= maxZeros-size {
		x.Chunks[n-1].Size += size
		return
	}
	x.Chunks = append(x.Chunks, Chunk{Size: size})
}

// Check reports whether data is the chunk.
func (c Chunk) Check(data []byte) bool {
	return len(data) == int(c.Size) && sha256.Sum256(data) == c.Sum
}
