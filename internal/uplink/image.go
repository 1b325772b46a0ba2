package uplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
)

// Images is what a link needs of the host's copy of the catalogue of images.
type Images interface {
	// Want takes over what a wanted list says of images: the revision of the catalogue, and what to do. It returns at
	// once.
	Want(revision int64, orders []fleet.ImageOrder)
}

// Catalogue reads the catalogue of images.
func (l *Link) Catalogue(ctx context.Context) (c fleet.Catalogue, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, caller := l.present()
	_, err = caller.call(ctx, http.MethodGet, fleet.RouteCatalogue, nil, &c)
	return c, err
}

// Blob is a file of an image, by its SHA-256 in hex, on those of the fleet's servers that have it; none named: on all.
func (l *Link) Blob(sum string, servers []string) imagesource.Source {
	return &blob{l, sum, servers, 0}
}

// blob is a file on several servers. One that does not deliver is followed by the next at the next attempt.
type blob struct {
	link    *Link
	sum     string
	servers []string
	at      int
}

func (b *blob) Stat(ctx context.Context) (imagesource.Info, error) {
	r, err := b.ask(ctx, http.MethodHead, 0)
	if err != nil {
		return imagesource.Info{}, err
	}
	r.Body.Close()
	return imagesource.Info{Name: b.sum[:min(12, len(b.sum))], Size: r.ContentLength, Version: b.sum}, nil
}

func (b *blob) Open(ctx context.Context, _ string, offset int64) (io.ReadCloser, error) {
	r, err := b.ask(ctx, http.MethodGet, offset)
	if err != nil {
		return nil, err
	}
	if begins := fmt.Sprintf("bytes %d-", offset); offset > 0 && (r.StatusCode != http.StatusPartialContent ||
		!strings.HasPrefix(r.Header.Get("Content-Range"), begins)) {
		r.Body.Close()
		return nil, b.failed(fmt.Errorf("another range came than that from %d", offset))
	}
	return r.Body, nil
}

// ask sends a request to the server whose turn it is.
func (b *blob) ask(ctx context.Context, method string, offset int64) (*http.Response, error) {
	_, c := b.link.present()
	bases := b.bases(c)
	base, header := bases[b.at%len(bases)], http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	r, err := c.send(ctx, method, base+fleet.RouteBlob+b.sum, nil, header)
	if err != nil {
		return nil, b.failed(err)
	}
	switch {
	case r.StatusCode < 300:
		return r, nil
	case method == http.MethodHead: // its problem has no body
		err = errors.New(r.Status)
	default:
		err = problemOf(r)
	}
	r.Body.Close()
	return nil, b.failed(fmt.Errorf("%s: %w", base, err))
}

// bases are the servers that have the file, as far as they are named; those that the host knows where none is.
func (b *blob) bases(c *caller) (bases []string) {
	for _, s := range b.servers {
		if base, err := baseOf(s); err == nil && !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	if bases == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.servers)
	}
	return bases
}

// failed is an error that passes: another server may have the file, and the first may be back.
func (b *blob) failed(err error) error {
	b.at++
	return &farm.Error{Kind: farm.Unavailable, Code: imagesource.CodeSource,
		Message: "the server does not deliver a file of the image", Err: err,
		Hint: "see whether the servers of the fleet run, and whether they have the image: `grange image show`"}
}
