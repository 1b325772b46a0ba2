// Package sourcetest is the contract that every source of images keeps.
package sourcetest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"testing"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
)

// Publisher is where a test publishes an image.
type Publisher interface {
	// Publish puts an image in the place of what was there, and returns its reference, which stays the same.
	Publish(t *testing.T, content []byte) (ref string)
	// Missing returns a reference to what is not there.
	Missing(t *testing.T) (ref string)
}

// Run runs the contract on what publisher returns, a new one for each test.
func Run(t *testing.T, publisher func(t *testing.T) Publisher) {
	for name, test := range map[string]func(*testing.T, Publisher){
		"whole": whole, "from an offset": fromOffset, "empty": empty, "replaced": replaced, "missing": missing,
		"version": versions,
	} {
		t.Run(name, func(t *testing.T) { test(t, publisher(t)) })
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func open(t *testing.T, ref string) (imagesource.Source, imagesource.Info) {
	t.Helper()
	s, err := imagesource.Open(ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, info
}

func read(t *testing.T, s imagesource.Source, version string, offset int64) []byte {
	t.Helper()
	r, err := s.Open(t.Context(), version, offset)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func whole(t *testing.T, p Publisher) {
	want := content(3 << 20)
	s, info := open(t, p.Publish(t, want))
	if info.Size != int64(len(want)) || info.Name == "" || info.Version == "" {
		t.Errorf("%+v", info)
	}
	if got := read(t, s, info.Version, 0); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, wanted %d", len(got), len(want))
	}
}

func fromOffset(t *testing.T, p Publisher) {
	want := content(1 << 20)
	s, info := open(t, p.Publish(t, want))
	for _, at := range []int{1, 4096, len(want) - 1} {
		if got := read(t, s, info.Version, int64(at)); !bytes.Equal(got, want[at:]) {
			t.Errorf("from %d: %d bytes", at, len(got))
		}
	}
}

func empty(t *testing.T, p Publisher) {
	s, info := open(t, p.Publish(t, nil))
	if got := read(t, s, info.Version, 0); info.Size != 0 || len(got) != 0 {
		t.Errorf("%+v: %d bytes", info, len(got))
	}
}

// replaced: whoever goes on with an image that is another by now is told.
func replaced(t *testing.T, p Publisher) {
	s, info := open(t, p.Publish(t, content(5000)))
	p.Publish(t, content(6000))
	if r, err := s.Open(t.Context(), info.Version, 100); !errors.Is(err, imagesource.ErrChanged) {
		if err == nil {
			r.Close()
		}
		t.Error("not told:", err)
	}
}

// versions are equal for what has not changed.
func versions(t *testing.T, p Publisher) {
	s, first := open(t, p.Publish(t, content(5000)))
	again, err := s.Stat(t.Context())
	if err != nil || again != first {
		t.Errorf("%+v, then %+v: %v", first, again, err)
	}
	if p.Publish(t, content(5001)); err == nil {
		if again, err = s.Stat(t.Context()); err != nil || again.Version == first.Version {
			t.Errorf("%+v, then %+v: %v", first, again, err)
		}
	}
}

func missing(t *testing.T, p Publisher) {
	s, err := imagesource.Open(p.Missing(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Stat(t.Context())
	var known *farm.Error
	if !errors.As(err, &known) || known.Kind != farm.NotFound || known.Code != imagesource.CodeSource {
		t.Error(err)
	}
}
