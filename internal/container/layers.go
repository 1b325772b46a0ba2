package container

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/grange-project/grange/internal/erofs"
)

// build writes the file system that layers, the lowest first, add up to. Each is read twice: for the tree, and for the
// contents that are left in it. limit bounds the bytes of the contents, and of what the layers unpack to.
func build(ctx context.Context, to io.WriterAt, layers []*os.File, limit int64, alive func()) error {
	t := newTree()
	first, err := newPass(ctx, layers, limit, alive)
	if err != nil {
		return err
	}
	second := *first
	for i, l := range layers {
		t.begin(int32(i))
		err := first.readLayer(l,
			func(index int32, h *tar.Header, _ io.Reader) error { return t.add(index, h) })
		if err != nil {
			return err
		}
	}
	w := erofs.NewWriter(to)
	for i, files := range t.withoutDevices(len(layers)) {
		err := second.readLayer(layers[i], func(index int32, h *tar.Header, r io.Reader) error {
			if len(files) == 0 {
				return errEnough
			}
			n := files[0]
			if n.Origin.Index != index {
				return nil
			}
			files = files[1:]
			if h.Size > limit-w.Written() {
				return tooLarge(limit)
			}
			return w.Content(n, r, h.Size)
		})
		if err != nil {
			return err
		}
		if len(files) > 0 {
			return badImage("a layer changed while it was read", "try again", nil)
		}
	}
	_, err = w.Finish(t.root, 0)
	return err
}

var errEnough = errors.New("the rest is not needed")

func tooLarge(limit int64) error {
	return badImage(fmt.Sprintf("the image unpacks to more than %d bytes", limit),
		"free space in the store, or take a smaller image", nil)
}

// pass is one reading of all layers.
type pass struct {
	ctx   context.Context
	alive func()
	limit int64
	left  int64 // bytes that layers may unpack to, all together
}

// newPass bounds a pass by what the layers have packed: zeros are packed a thousandfold, and files tenfold.
func newPass(ctx context.Context, layers []*os.File, limit int64, alive func()) (*pass, error) {
	p := &pass{ctx: ctx, alive: alive, limit: limit, left: 2 << 30}
	for _, l := range layers {
		info, err := l.Stat()
		if err != nil {
			return nil, err
		}
		p.left += info.Size() * 200
	}
	return p, nil
}

// readLayer calls each with every entry of a layer: a tar, packed or not.
func (p *pass) readLayer(f *os.File, each func(int32, *tar.Header, io.Reader) error) error {
	r, done, err := unpack(io.NewSectionReader(f, 0, math.MaxInt64))
	if err != nil {
		return damaged(err)
	}
	defer done()
	// A tar of empty files has some more bytes than its files.
	most := min(p.left, p.limit+(p.limit/4+64<<20))
	bounded := &boundedReader{ctx: p.ctx, r: r, alive: p.alive, left: most}
	defer func() { p.left -= most - bounded.left }()
	entries := tar.NewReader(bounded)
	for index := int32(0); ; index++ {
		h, err := entries.Next()
		switch {
		case err == io.EOF:
			return nil
		case bounded.err != nil:
			return bounded.err
		case err != nil:
			return damaged(err)
		}
		err = each(index, h, entries)
		switch {
		case errors.Is(err, errEnough):
			return nil
		case bounded.err != nil:
			return bounded.err
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrHeader):
			return damaged(err)
		case err != nil:
			return err
		}
	}
}

func damaged(err error) error {
	return badImage("a layer of the image is damaged", brokenHint, err)
}

// boundedReader ends with its context, and before a small file has become a large one.
type boundedReader struct {
	ctx   context.Context
	r     io.Reader
	alive func()
	left  int64
	err   error // why it ended, other than by the end
}

func (b *boundedReader) Read(p []byte) (int, error) {
	switch {
	case b.ctx.Err() != nil:
		b.err = context.Cause(b.ctx)
	case b.left <= 0:
		b.err = badImage("a layer of the image unpacks to more than there is room for",
			"free space in the store, or take a smaller image", nil)
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.alive()
	return n, err
}

// unpack finds out by the first bytes how a layer is packed.
func unpack(r io.Reader) (io.Reader, func(), error) {
	in := bufio.NewReaderSize(r, 256<<10)
	head, _ := in.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(in)
		return z, func() {}, err
	case bytes.Equal(head, []byte("\x28\xb5\x2f\xfd")):
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// add takes one entry of a layer.
func (t *tree) add(index int32, h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	xattrs, err := xattrsOf(h)
	if err != nil {
		return err
	}
	words := []string{h.Name, h.Linkname}
	for name, value := range xattrs {
		words = append(words, name, value)
	}
	if err := t.count(words...); err != nil {
		return err
	}
	parts, err := split("the name", h.Name)
	if err != nil {
		return err
	}
	if len(parts) > 0 && strings.HasPrefix(parts[len(parts)-1], whiteout) {
		return t.hide(parts)
	}
	if h.Typeflag == tar.TypeLink {
		return t.link(parts, h)
	}
	n, err := nodeOf(h, xattrs)
	if err != nil {
		return err
	}
	n.Origin.Layer, n.Origin.Index = t.layer, index
	return t.place(parts, n)
}

// link gives a file another name.
func (t *tree) link(parts []string, h *tar.Header) error {
	to, err := split("the hard link", strings.TrimPrefix(h.Linkname, "/"))
	if err != nil {
		return err
	}
	n, err := t.find(to)
	if err != nil {
		return err
	}
	if n == nil || n.Mode&erofs.TypeMask == erofs.TypeDir || len(parts) == 0 {
		return broken("the hard link %.200q points to %.200q, which is not a file of the image", h.Name, h.Linkname)
	}
	dir, err := t.directory(parts[:len(parts)-1], made)
	if err != nil {
		return err
	}
	t.set(entry{dir, parts[len(parts)-1]}, n)
	return nil
}

// nodeOf is what an entry becomes.
func nodeOf(h *tar.Header, xattrs map[string]string) (*erofs.Node, error) {
	if h.Uid < 0 || h.Gid < 0 || h.Uid > math.MaxUint32 || h.Gid > math.MaxUint32 || h.Size < 0 {
		return nil, broken("the file %.300q has an owner or a size that cannot be", h.Name)
	}
	n := &erofs.Node{Mode: uint32(h.Mode) & 0o7777, UID: uint32(h.Uid), GID: uint32(h.Gid), Xattrs: xattrs}
	if seconds := h.ModTime.Unix(); seconds > 0 {
		n.MTime, n.Nano = seconds, uint32(h.ModTime.Nanosecond())
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		n.Mode |= erofs.TypeRegular
	case tar.TypeDir:
		n.Mode |= erofs.TypeDir
	case tar.TypeSymlink:
		n.Mode |= erofs.TypeSymlink
		n.Target = h.Linkname
		if n.Target == "" || len(n.Target) > erofs.MaxTarget || strings.ContainsRune(n.Target, 0) {
			return nil, broken("the symbolic link %.300q leads nowhere, or too far", h.Name)
		}
	case tar.TypeFifo:
		n.Mode |= erofs.TypeFIFO
	case tar.TypeChar, tar.TypeBlock:
		n.Mode = device // the VM has its own
	default:
		return nil, broken("the file %.300q is of an unknown type %q", h.Name, h.Typeflag)
	}
	return n, nil
}

const paxXattr = "SCHILY.xattr."

// xattrsOf are the attributes that are taken over: those of people, rights of programs, and access lists. Others are
// the host's own affair on which the image was made, or overlayfs's.
func xattrsOf(h *tar.Header) (map[string]string, error) {
	var all map[string]string
	size := 0
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok || !keptXattr(name) {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = value
		size += len(name) + len(value) + 8
	}
	if size > erofs.MaxXattrs-64 {
		return nil, broken("the attributes of file %.300q have %d bytes", h.Name, size)
	}
	return all, nil
}

func keptXattr(name string) bool {
	return erofs.KnownXattr(name) && (!strings.HasPrefix(name, "security.") || name == "security.capability")
}
