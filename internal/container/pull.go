package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
	"github.com/grange-project/grange/internal/reach"
)

// Options are what Build needs beside a reference.
type Options struct {
	Dir   *os.Root // where layers lie until they are unpacked; what is there already is not read again
	Limit int64    // the most bytes that layers and contents may take, each
	// Report is told what is being done: "download" or "import". It may be nil.
	Report func(step string, done, total int64)
	// Resolve returns the path to open in place of the reference's, which has no symbolic links. nil: the reference's
	// own is opened, and links are followed.
	Resolve func(path string) (string, error)
	// Outside bounds which servers are reached: the registry, and those that it names for tokens and layers.
	Outside *reach.Outside
}

// Built is what Build has found out of an image beside its files.
type Built struct {
	Config Config
	Digest string // of its manifest; "" of a directory
}

// stall is how long a source may give nothing: a registry, or a file system that hangs, as one of a network may.
var stall = 2 * time.Minute

var errStalled = errors.New("nothing came for a long time")

// Build writes the file system of the image that a reference means now, an erofs, to an empty file, and returns its
// configuration. The same layers, and a directory that has not changed, make the same file system. A SIF file has one
// already: see ReadSIF. Errors: farm.CodeBadImage, imagesource.CodeSource, those of the files.
func Build(ctx context.Context, r Reference, to *os.File, o Options) (Built, error) {
	if o.Report == nil {
		o.Report = func(string, int64, int64) {}
	}
	if err := context.Cause(ctx); err != nil {
		return Built{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer alive.Stop()
	report := o.Report
	o.Report = func(step string, done, total int64) {
		alive.Reset(stall)
		report(step, done, total)
	}
	type result struct {
		Built
		err error
	}
	over := make(chan result, 1)
	go func() { // a call that reads a dead file system does not return
		var done result
		done.Built, done.err = produce(ctx, r, to, o)
		over <- done
	}()
	var done result
	select {
	case done = <-over:
	case <-ctx.Done():
		select {
		case done = <-over:
		case <-time.After(time.Second):
			done.err = context.Cause(ctx)
		}
	}
	if done.err != nil && errors.Is(context.Cause(ctx), errStalled) {
		done.err = sourceError(r, false, errStalled)
	} else if done.err != nil && ctx.Err() != nil {
		done.err = context.Cause(ctx)
	}
	return done.Built, done.err
}

// produce builds the image at the path that the reference's resolves to.
func produce(ctx context.Context, r Reference, to *os.File, o Options) (Built, error) {
	if o.Resolve != nil && r.path != "" {
		path, err := o.Resolve(r.path)
		if known := new(farm.Error); errors.As(err, &known) {
			return Built{}, err
		} else if err != nil {
			return Built{}, sourceError(r, true, err)
		}
		r.path = path
	}
	if r.scheme == schemeDirectory {
		return Built{}, directory(ctx, r.path, to, o)
	}
	return pull(ctx, r, to, o)
}

// building is held while a file system is made: a tree takes some hundred megabytes of memory at most, and only once.
var building = make(chan struct{}, 1)

// turn waits until no other image is made, and returns a file that reports all that is written to it.
func (o Options) turn(ctx context.Context, to *os.File) (watched *watchedFile, release func(), err error) {
	for {
		select {
		case building <- struct{}{}:
			o.Report("import", 0, 0)
			release := sync.OnceFunc(func() { <-building })
			context.AfterFunc(ctx, release) // whoever is left behind on a dead file system does not hold up others
			return &watchedFile{f: to, report: o.Report}, release, nil
		case <-time.After(stall / 4):
			o.Report("wait", 0, 0) // for other images
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// watchedFile is a file whose writing is reported.
type watchedFile struct {
	f      *os.File
	done   int64
	report func(step string, done, total int64)
}

func (w *watchedFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := w.f.WriteAt(b, at)
	w.done += int64(n)
	w.alive()
	return n, err
}

func (w *watchedFile) alive() { w.report("import", w.done, 0) }

// pull takes the layers of an image to our own disk, and makes its file system of them.
func pull(ctx context.Context, r Reference, to *os.File, o Options) (Built, error) {
	image, err := r.open(ctx, o.Outside)
	if err != nil {
		return Built{}, err
	}
	manifest, config, err := describe(r, image)
	if err != nil {
		return Built{}, err
	}
	total := int64(0)
	for _, l := range manifest.Layers {
		if l.Size < 0 || l.Size > o.Limit-total {
			return Built{}, tooLarge(o.Limit)
		}
		total += l.Size
	}
	layers, err := image.Layers()
	if err != nil {
		return Built{}, sourceError(r, false, err)
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	before := int64(0)
	for i, l := range layers {
		f, err := spool(ctx, r, l, manifest.Layers[i], o.Dir,
			func(done int64) { o.Report("download", before+done, total) })
		if err != nil {
			return Built{}, err
		}
		files, before = append(files, f), before+manifest.Layers[i].Size
	}
	out, release, err := o.turn(ctx, to)
	if err != nil {
		return Built{}, err
	}
	defer release()
	digest, err := image.Digest()
	if err != nil {
		return Built{}, remoteError(r, err)
	}
	return Built{config, digest.String()}, build(ctx, out, files, o.Limit-total, out.alive)
}

// describe reads manifest and configuration, and compares them with their digests.
func describe(r Reference, image v1.Image) (*v1.Manifest, Config, error) {
	fail := func(err error) (*v1.Manifest, Config, error) { return nil, Config{}, err }
	raw, err := image.RawManifest()
	if err != nil {
		return fail(remoteError(r, err))
	}
	want, err := image.Digest()
	if err != nil {
		return fail(remoteError(r, err))
	}
	manifest, err := image.Manifest()
	if err != nil {
		return fail(badImage("the manifest of "+r.text+" is damaged", brokenHint, err))
	}
	if err := compare("the manifest", raw, want); err != nil {
		return fail(err)
	}
	if len(manifest.Layers) > mostLayers || manifest.Config.Size > mostConfig {
		return fail(badImage(fmt.Sprintf("%s has %d layers and a configuration of %d bytes: more than is read", r.text,
			len(manifest.Layers), manifest.Config.Size), tooLargeHint, nil))
	}
	if err := r.blob(manifest.Config.Digest, mostConfig); err != nil {
		return fail(err)
	}
	text, err := image.RawConfigFile()
	if err != nil {
		return fail(remoteError(r, err))
	}
	if err := compare("the configuration", text, manifest.Config.Digest); err != nil {
		return fail(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return fail(badImage("the configuration of "+r.text+" is damaged", brokenHint, err))
	}
	if at := (v1.Platform{OS: file.OS, Architecture: file.Architecture}); at.OS != "" && !runs(&at) {
		return fail(wrongPlatform(r, []string{at.String()}))
	}
	config, err := configOf(file)
	return manifest, config, err
}

func compare(what string, text []byte, want v1.Hash) error {
	if sum := sha256.Sum256(text); want.Algorithm != "sha256" || hex.EncodeToString(sum[:]) != want.Hex {
		return badImage(what+" of the image is not what its digest says", "take the image from elsewhere", nil)
	}
	return nil
}

// open finds the image for this kind of machine.
func (r Reference) open(ctx context.Context, o *reach.Outside) (v1.Image, error) {
	if r.scheme == schemeLayout {
		return r.openLayout()
	}
	d, err := remote.Get(r.image, remote.WithContext(ctx), remote.WithTransport(registryTransport(r, o)),
		remote.WithUserAgent("grange"), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}))
	if err != nil {
		return nil, remoteError(r, err)
	}
	if d.MediaType.IsIndex() {
		index, err := d.ImageIndex()
		if err != nil {
			return nil, remoteError(r, err)
		}
		return r.choose(index, "")
	}
	if !d.MediaType.IsImage() {
		return nil, badImage(fmt.Sprintf("%s is not an image but %.100q", r.text, d.MediaType),
			"give the reference of a container image", nil)
	}
	image, err := d.Image()
	return image, remoteError(r, err)
}

func (r Reference) openLayout() (v1.Image, error) {
	if err := r.bounded("index.json", mostManifest); err != nil {
		return nil, err
	}
	dir, err := layout.FromPath(r.path)
	if err != nil {
		return nil, sourceError(r, true, err)
	}
	index, err := dir.ImageIndex()
	if err != nil {
		return nil, sourceError(r, true, err)
	}
	return r.choose(index, r.tag)
}

// bounded refuses a file of a layout that is to be read into memory, and is larger than it may be. A link, a device or
// a pipe has no size that would say so.
func (r Reference) bounded(name string, most int64) error {
	info, err := os.Lstat(filepath.Join(r.path, filepath.FromSlash(name)))
	switch {
	case err != nil:
		return sourceError(r, true, err)
	case !info.Mode().IsRegular():
		return badImage(fmt.Sprintf("%s of %s is no file", name, r.text), brokenHint, nil)
	case info.Size() > most:
		return badImage(fmt.Sprintf("%s of %s has more bytes than are read", name, r.text), tooLargeHint, nil)
	}
	return nil
}

// blob is bounded for what a descriptor names; what a registry sends is held to the descriptor's size.
func (r Reference) blob(h v1.Hash, most int64) error {
	if r.scheme != schemeLayout {
		return nil
	}
	return r.bounded(path.Join("blobs", h.Algorithm, h.Hex), most)
}

// tagAnnotation names an image of a layout.
const tagAnnotation = "org.opencontainers.image.ref.name"

// choose finds in an index the image with a tag, if one is wanted, for this kind of machine. An index may hold another.
func (r Reference) choose(index v1.ImageIndex, tag string) (v1.Image, error) {
	for range 4 {
		list, err := index.IndexManifest()
		if err != nil {
			return nil, remoteError(r, err)
		}
		fits, there := candidates(list.Manifests, tag)
		if len(fits) > 1 && tag == "" && r.scheme == schemeLayout {
			return nil, badImage(fmt.Sprintf("%s has %d images", r.text, len(fits)), "name one: oci-layout:/DIR:TAG",
				nil)
		}
		if len(fits) == 0 {
			return nil, wrongPlatform(r, there)
		}
		if fits[0].Size > mostManifest {
			return nil, badImage(r.text+" has a manifest of more bytes than are read", tooLargeHint, nil)
		}
		if err := r.blob(fits[0].Digest, mostManifest); err != nil {
			return nil, err
		}
		if d := fits[0]; !d.MediaType.IsIndex() {
			image, err := index.Image(d.Digest)
			return image, remoteError(r, err)
		}
		if index, err = index.ImageIndex(fits[0].Digest); err != nil {
			return nil, remoteError(r, err)
		}
		tag = ""
	}
	return nil, badImage(r.text+" is an index of indexes without end", brokenHint, nil)
}

// candidates are the images of an index that may be meant, and what each entry is for.
func candidates(all []v1.Descriptor, tag string) (fits []v1.Descriptor, there []string) {
	for _, d := range all {
		name := d.Annotations[tagAnnotation]
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
			continue
		}
		if tag != "" && name != tag {
			there = append(there, fmt.Sprintf("tag %q", name))
			continue
		}
		if d.Platform != nil && !runs(d.Platform) {
			there = append(there, d.Platform.String())
			continue
		}
		fits = append(fits, d)
	}
	return fits, there
}

// runs reports whether a platform is ours.
func runs(p *v1.Platform) bool {
	return p.OS == "linux" && p.Architecture == "amd64" && (p.Variant == "" || p.Variant == "v1")
}

func wrongPlatform(r Reference, there []string) error {
	slices.Sort(there)
	there = slices.Compact(there)
	what := "nothing"
	if len(there) > 0 {
		what = farm.Clean(strings.Join(there[:min(len(there), 20)], ", "), 500)
	}
	return badImage(fmt.Sprintf("%s has no image for linux/amd64; it has: %s", r.text, what),
		"choose an image, or a tag, for linux/amd64", nil)
}

// spool copies a layer to our own disk, unless it is there, and compares it with its digest.
func spool(ctx context.Context, r Reference, l v1.Layer, d v1.Descriptor, dir *os.Root, report func(done int64)) (
	*os.File, error) {
	if d.Digest.Algorithm != "sha256" || len(d.Digest.Hex) != 2*sha256.Size {
		return nil, badImage("a layer's digest is of an unknown kind", brokenHint, nil)
	}
	if len(d.URLs) > 0 {
		return nil, badImage("a layer is to be read from another server than the image",
			"ask for an image that has all its layers", nil)
	}
	name := "layer-" + d.Digest.Hex
	if f, err := dir.Open(name); err == nil {
		if verify(ctx, f, d, report) == nil {
			return f, nil
		}
		f.Close()
	}
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		f, err := copyLayer(ctx, r, l, d, dir, name, report)
		if err == nil {
			return f, nil
		}
		if known := new(farm.Error); ctx.Err() != nil || attempt == attempts || !errors.As(err, &known) ||
			known.Kind != farm.Unavailable {
			return nil, err
		}
	}
}

func copyLayer(ctx context.Context, r Reference, l v1.Layer, d v1.Descriptor, dir *os.Root, name string,
	report func(done int64)) (_ *os.File, err error) {
	f, err := dir.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			dir.Remove(name)
		}
	}()
	from, err := l.Compressed()
	if err != nil {
		return nil, remoteError(r, err)
	}
	defer from.Close()
	defer context.AfterFunc(ctx, func() { from.Close() })()
	sum := sha256.New()
	in := &tracked{ctx: ctx, r: io.LimitReader(from, d.Size+1), sum: sum, report: report}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, in, make([]byte, 1<<20))
	switch {
	case in.failed != nil:
		return nil, remoteError(r, in.failed)
	case err != nil:
		return nil, err
	case in.done != d.Size || hex.EncodeToString(sum.Sum(nil)) != d.Digest.Hex:
		return nil, notItsDigest(r, nil)
	}
	return f, nil
}

func notItsDigest(r Reference, err error) error {
	return badImage("a part of "+r.text+" is not what its digest says", "take the image from elsewhere", err)
}

// verify compares a file with a digest.
func verify(ctx context.Context, f *os.File, d v1.Descriptor, report func(done int64)) error {
	info, err := f.Stat()
	if err != nil || info.Size() != d.Size {
		return errors.Join(err, fs.ErrInvalid)
	}
	in := &tracked{ctx: ctx, r: io.NewSectionReader(f, 0, d.Size), sum: sha256.New(), report: report}
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, make([]byte, 1<<20)); err != nil {
		return err
	}
	if hex.EncodeToString(in.sum.Sum(nil)) != d.Digest.Hex {
		return fs.ErrInvalid
	}
	return nil
}

// tracked reads, and knows whose fault it was when that ended.
type tracked struct {
	ctx    context.Context
	r      io.Reader
	sum    hash.Hash
	done   int64
	report func(done int64)
	failed error
}

func (t *tracked) Read(b []byte) (int, error) {
	if err := context.Cause(t.ctx); err != nil {
		return 0, err
	}
	n, err := t.r.Read(b)
	t.sum.Write(b[:n])
	t.done += int64(n)
	if n > 0 {
		t.report(t.done)
	}
	if err != nil && err != io.EOF {
		t.failed = err
	}
	return n, err
}

// registryTransport is how registries are reached: as other web servers, and by plain http only where the reference
// says so, whatever a registry redirects to.
func registryTransport(r Reference, o *reach.Outside) http.RoundTripper {
	return onlyHTTPS{o.Over(secureTransport()), r.scheme == schemePlainHTTP}
}

const answerTime = 30 * time.Second

var secureTransport = sync.OnceValue(func() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: answerTime}).DialContext,
		TLSHandshakeTimeout:   answerTime,
		ResponseHeaderTimeout: answerTime,
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
		IdleConnTimeout:       answerTime,
		MaxIdleConnsPerHost:   2,
	}
})

type onlyHTTPS struct {
	http.RoundTripper
	plain bool
}

var errPlain = errors.New("the registry is reached by plain http, which only a reference oci+http:// allows")

func (t onlyHTTPS) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !t.plain {
		return nil, errPlain
	}
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && !strings.Contains(r.URL.Path, "/blobs/") {
		answer.Body = &shortBody{answer.Body, mostManifest}
	}
	return answer, err
}

// mostManifest is what registries themselves take of a manifest or an index. One is held in memory, several times.
const mostManifest = 4 << 20

var errLargeManifest = fmt.Errorf("the registry sends a manifest of more than %d bytes", mostManifest)

// shortBody is an answer that is no blob.
type shortBody struct {
	io.ReadCloser
	left int64
}

func (b *shortBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLargeManifest
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// remoteError is what a registry, or a file system, did not do; nil of nil.
func remoteError(r Reference, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, reach.ErrLocal):
		return imagesource.Local(r.text, err)
	case errors.Is(err, errLargeManifest):
		return badImage(r.text+" is not a usable image", tooLargeHint, err)
	case strings.Contains(err.Error(), "error verifying"): // the library has no error of its own for it
		return notItsDigest(r, err)
	}
	var answer *transport.Error
	gone := errors.Is(err, errPlain) || errors.Is(err, fs.ErrNotExist)
	if errors.As(err, &answer) {
		// 408 and 429 ask to come again later; other 4xx will be said again.
		gone = answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusRequestTimeout &&
			answer.StatusCode != http.StatusTooManyRequests
	}
	return sourceError(r, gone, err)
}

// sourceError is a fault of the place that a reference names. gone: trying again does not help.
func sourceError(r Reference, gone bool, err error) error {
	e := &farm.Error{Kind: farm.Unavailable, Code: imagesource.CodeSource, Message: "cannot read " + r.text,
		Hint: "try again: layers that came whole are not downloaded again", Err: err}
	if gone {
		e.Kind, e.Hint = farm.NotFound, "check the reference; images that need a password are not read"
	}
	return e
}
