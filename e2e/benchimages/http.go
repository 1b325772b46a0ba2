package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/transfer"
)

// httpPart is how much of the image is sent: at the rate of the server's link, each part takes as long.
const httpPart = 16

// http has all hosts fetch the qcow2, which is smaller than the raw disk, by plain HTTP at the same rates.
func (o options) http(ctx context.Context, r *result) error {
	name := filepath.Join(o.images, "first.qcow2")
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	part, rate := info.Size()/httpPart, transfer.NewRate(o.rate)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(name)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer f.Close()
		copyAt(r.Context(), w, io.LimitReader(f, part), rate)
	}))
	defer server.Close()
	began, errs := time.Now(), make([]error, o.hosts+o.agents)
	var all sync.WaitGroup
	for n := range errs {
		all.Go(func() { errs[n] = get(ctx, server.URL, part, o.rate) })
	}
	all.Wait()
	took := time.Since(began)
	r.HTTPSeconds, r.HTTPPart = seconds(took)*httpPart, 1.0/httpPart
	fmt.Printf("plain HTTP: %.1f s for a %dth of the qcow2\n", took.Seconds(), httpPart)
	return errors.Join(errs...)
}

func get(ctx context.Context, url string, size, rate int64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := copyAt(ctx, io.Discard, response.Body, transfer.NewRate(rate))
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes", n, size)
	}
	return err
}

// copyAt copies no faster than a rate.
func copyAt(ctx context.Context, to io.Writer, from io.Reader, rate *transfer.Rate) (n int64, err error) {
	b := make([]byte, 64<<10)
	for {
		m, err := from.Read(b)
		if m > 0 {
			if err := rate.Wait(ctx, m); err != nil {
				return n, err
			}
			if _, err := to.Write(b[:m]); err != nil {
				return n, err
			}
			n += int64(m)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
