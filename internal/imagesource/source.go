// Package imagesource reads images from where they are published: a path, a web server. It downloads, continues what
// was broken off, and compares with published checksums and signatures. What the bytes mean is vmimage's concern.
package imagesource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/reach"
)

// Codes of errors of sources; see docs/errors.md.
const (
	CodeBadSource   farm.Code = "bad-image-source" // a reference that names no source
	CodeSource      farm.Code = "image-source"     // the source does not deliver
	CodeUnverified  farm.Code = "image-unverified" // a checksum or a signature does not fit
	CodeImageTooBig farm.Code = "image-too-big"
)

// Source is one image at the place that publishes it. One goroutine at a time calls its methods.
type Source interface {
	// Stat returns what the source says of the image now.
	Stat(ctx context.Context) (Info, error)
	// Open reads the version that Stat has returned, from offset on. ErrChanged: the source has another version by now.
	Open(ctx context.Context, version string, offset int64) (io.ReadCloser, error)
}

// Info is what a source says of an image before its bytes are read.
type Info struct {
	Name    string // of the file, without its directory
	Size    int64  // -1 where the source does not say
	Version string // another one when the content is another; "" where the source cannot tell
	Sum     Sum    // as the source publishes it; "" for most, whose checksums are in a list beside them
}

// ErrChanged is the error of Open, and of a read, when the source replaced the image since Stat.
var ErrChanged = errors.New("the source has replaced the image")

// scheme is a kind of source. A new one is a file with its Source, and a line in schemes.
type scheme struct {
	prefix string // of references; what has none of these is a path
	open   func(ref string, web func(ref string) (Source, error)) (Source, error)
}

var schemes = []scheme{
	{streamsPrefix, newStreams},
	{"https://", ofWeb},
	{"http://", ofWeb},
	{"file://", ofFile},
	{"/", ofFile},
}

func ofWeb(ref string, web func(ref string) (Source, error)) (Source, error) { return web(ref) }

func ofFile(ref string, _ func(ref string) (Source, error)) (Source, error) {
	return newFile(strings.TrimPrefix(ref, "file://"))
}

// Open returns the source that ref names; o bounds which servers are reached. Nothing is read yet. Error:
// CodeBadSource. The source's methods return Local where o refuses an address.
func Open(ref string, o *reach.Outside) (Source, error) {
	i := slices.IndexFunc(schemes, func(s scheme) bool { return strings.HasPrefix(ref, s.prefix) })
	if i < 0 {
		return nil, badSource(ref, "it has no scheme that is known")
	}
	return schemes[i].open(ref, over(o))
}

func badSource(ref, why string) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadSource, Message: fmt.Sprintf("invalid image source %q: %s", ref,
		why), Hint: "give an absolute path, or a URL: https://HOST/DIRECTORY/FILE"}
}

// Local is the error of a source that leads to an address which only root may have read.
func Local(ref string, err error) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
		Message: ref + " leads to an address of this host or of its links, which only root may have it read",
		Hint:    "give a server at another address, or upload the file", Err: err}
}

// sourceError is what a source's own fault becomes. gone: trying again does not help.
func sourceError(ref string, gone bool, err error) error {
	e := &farm.Error{Kind: farm.Unavailable, Code: CodeSource, Message: "cannot read " + ref,
		Hint: "try again: the download continues where it ended", Err: err}
	if gone {
		e.Kind, e.Hint = farm.NotFound, "check the address"
	}
	return e
}
