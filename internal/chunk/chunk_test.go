package chunk

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func noise(seed uint64, n int) []byte {
	r, b := rand.New(rand.NewPCG(seed, 0)), make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func mustCut(t *testing.T, b []byte) *Index {
	t.Helper()
	x, err := Cut(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestIndex(t *testing.T) {
	for name, b := range map[string][]byte{"empty": {}, "byte": {1}, "noise": noise(1, 3<<20),
		"zeros": make([]byte, 5<<20), "both": append(noise(2, 1<<20), make([]byte, 3<<20)...)} {
		t.Run(name, func(t *testing.T) {
			x := mustCut(t, b)
			if x.Size != int64(len(b)) || x.File != sha256.Sum256(b) {
				t.Error(x.Size, x.File)
			}
			back, err := Unmarshal(x.Marshal())
			if err != nil || !cmp.Equal(x.Marshal(), back.Marshal()) {
				t.Error(back, err)
			}
			l, made := Lay(back), make([]byte, len(b))
			for _, piece := range l.Pieces {
				for _, i := range piece {
					c, at := l.Chunks[i], l.Offsets[i]
					if !c.Check(b[at : at+int64(c.Size)]) {
						t.Errorf("chunk %d is another", i)
					}
					for _, same := range append(l.Same[i], i) {
						copy(made[l.Offsets[same]:], b[at:at+int64(c.Size)])
					}
				}
			}
			if !bytes.Equal(made, b) {
				t.Error("the pieces are not the file")
			}
		})
	}
}

func TestZeros(t *testing.T) {
	x := mustCut(t, make([]byte, 64<<20))
	if len(x.Chunks) != 1 || !x.Chunks[0].Zeros() || len(Lay(x).Pieces) != 0 {
		t.Error(x.Chunks)
	}
}

// TestShifted: what lies elsewhere in another file is found there.
func TestShifted(t *testing.T) {
	b := noise(3, 8<<20)
	other := bytes.Join([][]byte{noise(4, 12345), b[:5<<20], noise(5, 999), b[5<<20:]}, nil)
	l := Lay(mustCut(t, other))
	found, size := Reuse(l, []*Index{mustCut(t, b)}), 0
	for _, f := range found {
		c := l.Chunks[f.Chunk]
		if !c.Check(b[f.At : f.At+int64(c.Size)]) {
			t.Fatalf("chunk %d is not at %d", f.Chunk, f.At)
		}
		size += int(c.Size)
	}
	if missing := len(other) - size; missing > 1<<20 {
		t.Errorf("%d bytes of %d are not found", missing, len(other))
	}
}

func TestPack(t *testing.T) {
	b := append(noise(6, 1<<20), bytes.Repeat([]byte("text "), 200_000)...)
	x := mustCut(t, b)
	var packed bytes.Buffer
	err := Pack(&packed, func(w io.Writer) error { _, err := w.Write(b); return err })
	if err != nil || packed.Len() > len(b)*2/3 {
		t.Fatal(packed.Len(), err)
	}
	read := func(b []byte) error {
		u := NewUnpacker(bytes.NewReader(b))
		defer u.Close()
		for _, c := range x.Chunks {
			if data, err := u.Next(c); err != nil {
				return err
			} else if !c.Check(data) {
				t.Error("another chunk")
			}
		}
		return nil
	}
	if err := read(packed.Bytes()); err != nil {
		t.Error(err)
	}
	err = read(packed.Bytes()[:packed.Len()/2])
	if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrBadChunk) {
		t.Error("cut off:", err)
	}
	spoiled := bytes.Clone(packed.Bytes())
	spoiled[len(spoiled)/2] ^= 1
	if err := read(spoiled); !errors.Is(err, ErrBadChunk) {
		t.Error("spoiled:", err)
	}
	if err := read([]byte("no zstd at all")); !errors.Is(err, ErrBadChunk) {
		t.Error("no zstd:", err)
	}
}

func TestParseSum(t *testing.T) {
	s := Sum(sha256.Sum256(nil))
	if got, err := ParseSum(s.String()); err != nil || got != s {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "sha256:", s.String()[7:], s.String() + "0", s.String()[:70],
		"sha256:" + s.String()[:64], "SHA256" + s.String()[6:]} {
		if _, err := ParseSum(bad); err == nil {
			t.Errorf("%q is a digest", bad)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	x, err := Cut(bytes.NewReader(append(noise(7, 100_000), make([]byte, 100_000)...)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(x.Marshal())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Unmarshal(b)
		if err != nil {
			return
		}
		if !bytes.Equal(x.Marshal(), b) {
			t.Error("another index")
		}
		l := Lay(x)
		var bytes int64
		for _, p := range l.Pieces {
			for _, i := range p {
				if c := l.Chunks[i]; c.Zeros() || c.Size > MaxSize || l.Offsets[i]+int64(c.Size) > x.Size {
					t.Errorf("chunk %d: %+v at %d of %d", i, c, l.Offsets[i], x.Size)
				}
				bytes += int64(l.Chunks[i].Size)
			}
		}
		if bytes > l.Bytes {
			t.Errorf("%d bytes in pieces, %d in all", bytes, l.Bytes)
		}
	})
}
