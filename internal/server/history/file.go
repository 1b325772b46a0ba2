package history

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/grange-project/grange/internal/atomicfile"
)

// mostBytes is more than a full history takes in memory; a file that has more is not ours.
const mostBytes = 64 << 20

// Save writes the file.
func (h *History) Save() error {
	if h.file == "" {
		return nil
	}
	var text bytes.Buffer
	z, err := zstd.NewWriter(&text, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	h.mu.Lock()
	err = gob.NewEncoder(z).Encode(h.series)
	h.mu.Unlock()
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return atomicfile.Write(h.file, text.Bytes(), 0o600)
}

// load reads the file; nil where there is none.
func load(file string) (map[string]*series, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := zstd.NewReader(io.LimitReader(f, mostBytes), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(mostBytes))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var all map[string]*series
	if err := gob.NewDecoder(io.LimitReader(z, mostBytes)).Decode(&all); err != nil {
		return nil, fmt.Errorf("%s is not a history: %w", file, err)
	}
	for name, s := range all {
		if len(all) > mostSeries || !s.sound() {
			return nil, fmt.Errorf("%s is not a history of this release: series %q", file, name)
		}
	}
	return all, nil
}

// sound reports whether a series has the levels of this release.
func (s *series) sound() bool {
	if s == nil || len(s.Rings) != len(levels) {
		return false
	}
	for i, l := range levels {
		if r := s.Rings[i]; len(r.Values) != l.slots || r.Newest < 0 || r.Count < 0 {
			return false
		}
	}
	return true
}
