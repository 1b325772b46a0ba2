package imagesource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// Download is a copy of one source's file that is under way. It is kept in a directory of its own, so that another
// process continues where this one was killed.
type Download struct {
	Source Source
	Dir    *os.Root // of this download alone; Run is called by one process at a time
	Limit  int64    // the most bytes that are accepted

	// Report is told how far it is, and in note why nothing comes at the moment. It may be nil.
	Report func(done, total int64, note string)
	// pause waits between attempts; tests replace it.
	pause func(ctx context.Context, d time.Duration) error
}

// DataFile is the name of the file that is downloaded, in Download.Dir.
const DataFile = "data"

const stateFile = "state.json"

const (
	// attempts are made without a new byte in between before a download fails.
	attempts   = 8
	firstPause = time.Second
	mostPause  = 30 * time.Second
	// stall is how long a source may send nothing.
	stall      = time.Minute
	readBuffer = 1 << 20
	// syncAfter bounds what a power loss can take back.
	syncAfter = 256 << 20
)

var errStalled = fmt.Errorf("nothing came for %s", stall)

// state is what a later process must know of the bytes.
type state struct {
	Version string `json:"version"`
	// Synced bytes are on the disk: what lies behind may be zeros after a power loss.
	Synced int64 `json:"synced"`
}

// Run downloads until the file is whole, and returns it open at its beginning. Its name is Info.Name. Errors:
// CodeSource, CodeImageTooBig, those of the directory.
func (d *Download) Run(ctx context.Context) (*os.File, Info, error) {
	f, err := d.Dir.OpenFile(DataFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, Info{}, err
	}
	info, err := d.repeat(ctx, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, Info{}, err
	}
	return f, info, nil
}

// repeat tries until the file is whole, or nothing came for several attempts.
func (d *Download) repeat(ctx context.Context, f *os.File) (Info, error) {
	wait, failed := firstPause, 0
	for {
		before, _ := size(f)
		info, err := d.try(ctx, f)
		if err == nil || ctx.Err() != nil || !passing(err) {
			return info, err
		}
		if after, _ := size(f); after > before {
			wait, failed = firstPause, 0
		}
		if failed++; failed == attempts {
			return info, err
		}
		d.report(before, info.Size, fmt.Sprintf("trying again in %s: %v", wait, err))
		if err := d.sleep(ctx, wait); err != nil {
			return info, err
		}
		wait = min(2*wait, mostPause)
	}
}

// passing reports whether another attempt may do better.
func passing(err error) bool {
	var known *farm.Error
	return errors.Is(err, ErrChanged) || errors.As(err, &known) && known.Kind == farm.Unavailable
}

// try reads what is missing.
func (d *Download) try(ctx context.Context, f *os.File) (Info, error) {
	info, err := d.Source.Stat(ctx)
	if err != nil {
		return info, err
	}
	if info.Size > d.Limit {
		return info, tooBig(d.Limit)
	}
	at, err := d.resume(f, info)
	if err != nil || at == info.Size {
		return info, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer silence.Stop()
	body, err := d.Source.Open(ctx, info.Version, at)
	if err != nil {
		return info, err
	}
	defer body.Close()
	err = d.copy(f, body, at, info, func() { silence.Reset(stall) })
	if err != nil && context.Cause(ctx) != nil && !errors.Is(err, ErrChanged) {
		err = sourceError(info.Name, false, context.Cause(ctx))
	}
	return info, err
}

// resume is where to go on: behind the bytes that are there, if they are of this version, or at the beginning.
func (d *Download) resume(f *os.File, info Info) (int64, error) {
	var s state
	if text, err := d.Dir.ReadFile(stateFile); err != nil || json.Unmarshal(text, &s) != nil {
		s = state{}
	}
	there, err := size(f)
	if err != nil {
		return 0, err
	}
	if info.Version == "" || s.Version != info.Version || there < s.Synced || info.Size >= 0 && there > info.Size {
		if err := f.Truncate(0); err != nil {
			return 0, err
		}
		return 0, d.save(f, state{Version: info.Version})
	}
	return s.Synced, f.Truncate(s.Synced)
}

func (d *Download) save(f *os.File, s state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	next := stateFile + ".new"
	if err := d.Dir.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return d.Dir.Rename(next, stateFile)
}

func (d *Download) copy(f *os.File, body io.Reader, at int64, info Info, alive func()) (err error) {
	block, synced := make([]byte, readBuffer), at
	defer func() {
		if at > synced {
			err = errors.Join(err, d.save(f, state{info.Version, at}))
		}
	}()
	for {
		n, read := body.Read(block)
		if n > 0 {
			alive()
			if at+int64(n) > d.Limit {
				return tooBig(d.Limit)
			}
			if _, err := f.WriteAt(block[:n], at); err != nil {
				return err
			}
			at += int64(n)
			d.report(at, info.Size, "")
		}
		switch {
		case read == io.EOF && info.Size >= 0 && at != info.Size:
			return sourceError(info.Name, false, fmt.Errorf("%d of %d bytes came", at, info.Size))
		case read == io.EOF:
			return nil
		case errors.Is(read, ErrChanged):
			return read
		case read != nil:
			return sourceError(info.Name, false, read)
		}
		if at-synced >= syncAfter {
			if err := d.save(f, state{info.Version, at}); err != nil {
				return err
			}
			synced = at
		}
	}
}

func (d *Download) report(done, total int64, note string) {
	if d.Report != nil {
		d.Report(done, total, note)
	}
}

func (d *Download) sleep(ctx context.Context, t time.Duration) error {
	if d.pause != nil {
		return d.pause(ctx, t)
	}
	select {
	case <-time.After(t):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func tooBig(limit int64) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeImageTooBig,
		Message: fmt.Sprintf("the image has more than %s", farm.Bytes(limit)),
		Hint:    "raise the limit if the image is meant to be so large"}
}

func size(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ReadSmall returns the whole of a small file. Error: CodeSource, CodeImageTooBig for more than limit bytes.
func ReadSmall(ctx context.Context, s Source, limit int64) ([]byte, error) {
	info, err := s.Stat(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stall, errStalled)
	defer cancel()
	body, err := s.Open(ctx, info.Version, 0)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return nil, sourceError(info.Name, false, err)
	case int64(len(text)) > limit:
		return nil, tooBig(limit)
	}
	return text, nil
}
