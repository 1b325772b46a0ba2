package imagesource

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// flaky is a source in memory that fails as its script says: each Open serves as many bytes as the next entry.
type flaky struct {
	content []byte
	version string
	hide    bool  // says no size
	serves  []int // bytes until the connection breaks; behind the last entry all is served
	opens   []int64
	before  func(*flaky) // called by each Open
}

func (f *flaky) Stat(context.Context) (Info, error) {
	size := int64(len(f.content))
	if f.hide {
		size = -1
	}
	return Info{Name: "disk.raw", Size: size, Version: f.version}, nil
}

func (f *flaky) Open(_ context.Context, version string, offset int64) (io.ReadCloser, error) {
	if f.before != nil {
		f.before(f)
	}
	if version != f.version {
		return nil, ErrChanged
	}
	f.opens = append(f.opens, offset)
	rest := f.content[offset:]
	if len(f.serves) == 0 {
		return io.NopCloser(bytes.NewReader(rest)), nil
	}
	n := min(f.serves[0], len(rest))
	f.serves = f.serves[1:]
	return io.NopCloser(io.MultiReader(bytes.NewReader(rest[:n]), broken{})), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

func newDownload(t *testing.T, s Source) *Download {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return &Download{Source: s, Dir: dir, Limit: 1 << 30,
		pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

func get(t *testing.T, d *Download) []byte {
	t.Helper()
	f, _, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// TestContinues: a connection that breaks is opened again behind the last byte.
func TestContinues(t *testing.T) {
	s := &flaky{content: random(10000), version: "1", serves: []int{3000, 0, 2500}}
	if got := get(t, newDownload(t, s)); !bytes.Equal(got, s.content) {
		t.Errorf("%d bytes that are not the image", len(got))
	}
	if want := []int64{0, 3000, 3000, 5500}; len(s.opens) != 4 || s.opens[1] != want[1] || s.opens[3] != want[3] {
		t.Errorf("read from %v, wanted %v", s.opens, want)
	}
}

// TestContinuesInAnotherProcess: what a killed process wrote is not read again, and what it may not have synced is.
func TestContinuesInAnotherProcess(t *testing.T) {
	s := &flaky{content: random(10000), version: "1", serves: []int{4000}}
	d := newDownload(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	d.Report = func(int64, int64, string) { cancel() }
	d.pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	if _, _, err := d.Run(ctx); err == nil {
		t.Fatal("not cancelled")
	}
	f, err := d.Dir.OpenFile(DataFile, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(make([]byte, 500)) // zeros, as after a power loss
	f.Close()
	s.opens = nil
	next := &Download{Source: s, Dir: d.Dir, Limit: d.Limit}
	if got := get(t, next); !bytes.Equal(got, s.content) || s.opens[0] != 4000 {
		t.Errorf("%d bytes, read from %v", len(got), s.opens)
	}
}

// TestReplacedMeanwhile: nothing of an older version stays.
func TestReplacedMeanwhile(t *testing.T) {
	s := &flaky{content: random(10000), version: "1", serves: []int{3000}}
	s.before = func(f *flaky) {
		if len(f.opens) == 1 && f.version == "1" {
			f.content, f.version = random(9000), "2"
		}
	}
	if got := get(t, newDownload(t, s)); !bytes.Equal(got, s.content) {
		t.Error("a mixture")
	}
}

// TestWithoutVersion: a source that cannot tell versions apart is read anew.
func TestWithoutVersion(t *testing.T) {
	s := &flaky{content: random(10000), hide: true, serves: []int{3000}}
	if got := get(t, newDownload(t, s)); !bytes.Equal(got, s.content) || s.opens[1] != 0 {
		t.Errorf("%d bytes, read from %v", len(got), s.opens)
	}
}

func TestTooBig(t *testing.T) {
	for _, hide := range []bool{false, true} {
		d := newDownload(t, &flaky{content: random(10000), version: "1", hide: hide})
		d.Limit = 9999
		if _, _, err := d.Run(t.Context()); !hasCode(err, CodeImageTooBig) {
			t.Errorf("hide %v: %v", hide, err)
		}
	}
}

// TestGivesUp: a source that never sends a byte is tried a few times, and each wait is announced.
func TestGivesUp(t *testing.T) {
	s := &flaky{content: random(100), version: "1", serves: make([]int, 100)}
	d := newDownload(t, s)
	notes := 0
	d.Report = func(_, _ int64, note string) {
		if strings.Contains(note, "connection reset") {
			notes++
		}
	}
	if _, _, err := d.Run(t.Context()); !hasCode(err, CodeSource) || len(s.opens) != attempts || notes != attempts-1 {
		t.Errorf("%v after %d attempts and %d notes", err, len(s.opens), notes)
	}
}

// TestShorter: a file that ends before its size is not whole.
func TestShorter(t *testing.T) {
	s := &cutShort{flaky{content: random(5000), version: "1"}}
	if _, _, err := newDownload(t, s).Run(t.Context()); !hasCode(err, CodeSource) {
		t.Error(err)
	}
}

type cutShort struct{ flaky }

func (c *cutShort) Open(_ context.Context, _ string, offset int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(c.content[min(offset, 4000):4000])), nil
}

func hasCode(err error, code farm.Code) bool {
	var known *farm.Error
	return errors.As(err, &known) && known.Code == code
}
