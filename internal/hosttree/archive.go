package hosttree

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Bounds of an archive. A recording of a host with 512 CPUs and 100 VMs takes some 30 MiB.
const (
	maxStream = 1 << 30   // bytes after decompression
	maxTotal  = 256 << 20 // bytes of all files
	maxFile   = 16 << 20  // bytes of one file
	maxName   = 4096      // bytes of a path
	zstdMem   = 128 << 20 // what a zstd decoder may take
)

// openArchive reads an archive into memory.
func openArchive(name string, from io.Reader) (*Tree, error) {
	const hint = "an archive of `grange host record` may have been cut short; the formats are tar, tar.gz, tar.bz2, " +
		"tar.zst and txtar"
	plain, err := decompress(bufio.NewReader(from))
	if err != nil {
		return nil, bad(name, err, hint, "cannot be read")
	}
	defer plain.Close()
	stream := bufio.NewReader(&io.LimitedReader{R: plain, N: maxStream})
	m := newMemory()
	if strings.HasSuffix(name, ".txtar") {
		err = m.readText(stream)
	} else {
		end := &lastBlock{r: stream}
		if err = m.readTar(tar.NewReader(end)); err == nil && !end.zero() {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return nil, bad(name, err, hint, "cannot be read")
	}
	host, err := findHost(name, m)
	if err != nil {
		return nil, err
	}
	below, err := m.sub(host)
	return &Tree{FS: below, Name: name}, err
}

// decompress knows a compression by its first bytes.
func decompress(r *bufio.Reader) (io.ReadCloser, error) {
	head, _ := r.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.HasPrefix(head, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(r)), nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(zstdMem))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// readTar takes files, links and directories; devices and pipes are left out.
func (m *memory) readTar(r *tar.Reader) error {
	total := int64(0)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := safeName(h.Name)
		if err != nil {
			return err
		}
		if total += h.Size; h.Size > maxFile || total > maxTotal {
			return fmt.Errorf("%s: more than %d MiB in a file, or %d MiB in all", h.Name, maxFile>>20, maxTotal>>20)
		}
		switch {
		case h.Typeflag == tar.TypeDir:
			_, err = m.mkdir(name)
		case name == "":
			err = errors.New("a file without a name")
		case h.Typeflag == tar.TypeSymlink:
			err = m.add(name, fs.ModeSymlink|0o777, []byte(h.Linkname))
		case h.Typeflag == tar.TypeLink:
			err = m.hardLink(name, h.Linkname)
		case h.Typeflag == tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = m.add(name, 0o444, data)
			}
		}
		if err != nil {
			return err
		}
	}
}

// lastBlock remembers the last block that was read: a whole archive ends in zeros, and package tar lets the lack of it
// pass.
type lastBlock struct {
	r    io.Reader
	last []byte
}

const tarBlock = 512

func (l *lastBlock) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.last = append(l.last, p[max(0, n-tarBlock):n]...)
	l.last = l.last[max(0, len(l.last)-tarBlock):]
	return n, err
}

func (l *lastBlock) zero() bool { return bytes.Equal(l.last, make([]byte, tarBlock)) }

// hardLink gives a file that came before in the archive a second name.
func (m *memory) hardLink(name, target string) error {
	old, err := safeName(target)
	if err != nil {
		return err
	}
	n, err := m.find("link", path.Clean(old), false)
	if err != nil {
		return err
	}
	if n.mode.IsDir() {
		return fmt.Errorf("%s is a second name of a directory", name)
	}
	return m.add(name, n.mode, n.data)
}

// safeName is a path of an archive from its root, "" for the root itself. One that leads out of it is an error.
func safeName(name string) (string, error) {
	if len(name) > maxName || strings.ContainsRune(name, 0) {
		return "", errors.New("invalid path")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("%s leads out of the archive", name)
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// readText reads a txtar archive: files behind lines "-- name --", and a comment before the first.
func (m *memory) readText(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, maxTotal+1))
	if err != nil {
		return err
	}
	if len(text) > maxTotal {
		return fmt.Errorf("more than %d MiB", maxTotal>>20)
	}
	name, start, at := "", 0, 0
	flush := func(end int) error {
		if name == "" {
			return nil
		}
		return m.add(name, 0o444, text[start:end])
	}
	for line := range bytes.Lines(text) {
		marked, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("-- "))
		marked, ok2 := bytes.CutSuffix(marked, []byte(" --"))
		if ok && ok2 {
			if err := flush(at); err != nil {
				return err
			}
			if name, err = safeName(string(bytes.TrimSpace(marked))); err != nil {
				return err
			}
			start = at + len(line)
		}
		at += len(line)
	}
	return flush(at)
}
