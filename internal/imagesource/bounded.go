package imagesource

import (
	"context"
	"errors"
	"io"
	"time"
)

// bounded is a source on a file system that may hang: what waits for that cannot be interrupted, and is left behind.
type bounded struct{ Source }

// Bounded returns a source that gives up what takes longer than a minute. A nil source stays nil.
func Bounded(s Source) Source {
	if s == nil {
		return nil
	}
	return bounded{s}
}

var errHangs = errors.New("the file system does not answer")

// within calls f, and returns without it when it takes too long.
func within[T any](ctx context.Context, limit time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	over := make(chan result, 1)
	go func() {
		v, err := f()
		over <- result{v, err}
	}()
	var none T
	select {
	case r := <-over:
		return r.value, r.err
	case <-time.After(limit):
		return none, errHangs
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func (b bounded) Stat(ctx context.Context) (Info, error) {
	info, err := within(ctx, stall, func() (Info, error) { return b.Source.Stat(ctx) })
	if errors.Is(err, errHangs) {
		err = sourceError("the image", false, err)
	}
	return info, err
}

func (b bounded) Open(ctx context.Context, version string, offset int64) (io.ReadCloser, error) {
	r, err := within(ctx, stall, func() (io.ReadCloser, error) { return b.Source.Open(ctx, version, offset) })
	if err != nil {
		if errors.Is(err, errHangs) {
			err = sourceError("the image", false, err)
		}
		return nil, err
	}
	return &boundedFile{ctx, r}, nil
}

type boundedFile struct {
	ctx context.Context
	r   io.ReadCloser
}

func (f *boundedFile) Read(b []byte) (int, error) {
	own := make([]byte, len(b)) // a read that was given up may still write to its buffer
	n, err := within(f.ctx, stall, func() (int, error) { return f.r.Read(own) })
	return copy(b, own[:n]), err
}

func (f *boundedFile) Close() error {
	go f.r.Close() // it may wait for a read
	return nil
}
