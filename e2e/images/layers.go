package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// entry is one of a layer; its content is in Linkname if it is a regular file.
type entry = tar.Header

func file(name, content string) entry { return entry{Name: name, Linkname: content} }

func dir(name string) entry { return entry{Name: name, Typeflag: tar.TypeDir} }

// layer is a tar of the entries. What the writer of tars would not write is not there.
func layer(entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		if h.Typeflag == 0 {
			h.Typeflag, h.Linkname, content = tar.TypeReg, "", h.Linkname
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.ModTime = time.Unix(1700000000, 0)
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		io.WriteString(w, content)
	}
	w.Close()
	return b.Bytes()
}

func zipped(b []byte) v1.Layer {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	w.Write(b)
	w.Close()
	return static.NewLayer(out.Bytes(), types.OCILayer)
}

// image is one of layers, with what runs in it.
func image(c v1.Config, layers ...v1.Layer) (v1.Image, error) {
	i, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		return nil, err
	}
	file := &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: c, RootFS: v1.RootFS{Type: "layers"}}
	for _, l := range layers { // other readers compare
		id, err := diffID(l)
		if err != nil {
			return nil, err
		}
		file.RootFS.DiffIDs = append(file.RootFS.DiffIDs, id)
	}
	i, err = mutate.ConfigFile(i, file)
	return mutate.ConfigMediaType(i, types.OCIConfigJSON), err
}

func diffID(l v1.Layer) (v1.Hash, error) {
	packed, err := l.Compressed()
	if err != nil {
		return v1.Hash{}, err
	}
	z, err := gzip.NewReader(packed)
	if err != nil {
		return v1.Hash{}, err
	}
	h, _, err := v1.SHA256(z)
	return h, err
}

// entrypoint prints what it was started with.
const entrypoint = `echo "$0|$1|$2"; /busybox pwd; echo "$OURS"; echo "${PATH%%:/host*}"; umask`

// good is an image of two layers with all that layers may have: what they add up to is under /data.
func good() (v1.Image, error) {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, err
	}
	noise := make([]byte, 24<<20)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	owned := entry{Name: "data/owned", Linkname: "x", Uid: 1234, Gid: 65534, Mode: 0o640}
	low := layer(file("busybox", string(program)), dir("data"), dir("data/hidden"), file("data/hidden/a", "hidden"),
		file("data/gone", "gone"), file("data/replaced", "low"), file("data/noise", string(noise)), owned,
		file("data/zeros", strings.Repeat("\x00", 3<<20)), file("data/empty", ""),
		entry{Name: "data/hard", Typeflag: tar.TypeLink, Linkname: "data/noise"},
		entry{Name: "data/link", Typeflag: tar.TypeSymlink, Linkname: "/data/owned"},
		entry{Name: "data/up", Typeflag: tar.TypeSymlink, Linkname: "../../../../etc/shadow"},
		entry{Name: "data/fifo", Typeflag: tar.TypeFifo, Mode: 0o600},
		entry{Name: "data/sticky", Typeflag: tar.TypeDir, Mode: 0o1777, Gid: 7},
		entry{Name: "data/" + strings.Repeat("long/", 30) + "name", Linkname: "deep"},
		entry{Name: "suid/program", Linkname: "x", Mode: 0o6755},
		entry{Name: "devices/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1},
		entry{Name: "devices/disk", Typeflag: tar.TypeBlock, Devmajor: 8, Devminor: 0})
	high := layer(file("data/.wh.gone", ""), file("data/hidden/.wh..wh..opq", ""), file("data/hidden/b", "seen"),
		file("data/replaced", "high"), file("data/late", "late"))
	return image(v1.Config{Entrypoint: []string{"/busybox", "sh", "-c", entrypoint, "zero"},
		Cmd: []string{"one", "two words"}, WorkingDir: "/work/here", User: "1234:7",
		Env: []string{"PATH=/opt/bin:/usr/bin", "OURS=of the image"}}, zipped(low), zipped(high))
}

// hostileLayers are what nobody should be given to run; a bomb unpacks to more than there is room for.
func hostileLayers() (map[string]v1.Layer, error) {
	link := func(typ byte, name, to string) entry { return entry{Name: name, Typeflag: typ, Linkname: to} }
	layers := map[string]v1.Layer{}
	for name, entries := range map[string][]entry{
		"an absolute name":      {file("/etc/passwd", "x")},
		"a name with dots":      {file("a/../../etc/passwd", "x")},
		"a hard link outside":   {link(tar.TypeLink, "l", "../../etc/shadow")},
		"a hard link to a host": {link(tar.TypeLink, "l", "/etc/shadow")},
		"a link in a circle":    {link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "b", "a"), file("a/x", "x")},
		"a root that is a link": {link(tar.TypeSymlink, ".", "/")},
		"a deep tree":           {file(strings.Repeat("d/", 200)+"f", "x")},
		"an unknown type":       {link('Z', "x", "")},
		"an owner too large":    {{Name: "x", Typeflag: tar.TypeDir, Uid: 1 << 40}},
		"large attributes": {{Name: "x", Typeflag: tar.TypeDir,
			PAXRecords: map[string]string{"SCHILY.xattr.user.x": strings.Repeat("x", 70000)}}},
	} {
		layers[name] = zipped(layer(entries...))
	}
	layers["a layer cut short"] = zipped(layer(file("x", strings.Repeat("x", 5000)))[:3000])
	layers["a layer that is no tar"] = zipped(bytes.Repeat([]byte("nonsense"), 1000))
	var err error
	for name, size := range map[string]int64{"a bomb of zeros": 6 << 30, "a file of an exabyte": 1 << 60} {
		if layers[name], err = bomb(func(w io.Writer) error {
			t := tar.NewWriter(w)
			h := &entry{Name: "huge", Typeflag: tar.TypeReg, Size: size, Mode: 0o644, Format: tar.FormatGNU}
			if err := t.WriteHeader(h); err != nil || size > 1<<40 {
				return err
			}
			_, err := io.CopyN(t, zeros{}, size)
			return err
		}); err != nil {
			return nil, err
		}
	}
	layers["a bomb of files"], err = bomb(func(w io.Writer) error {
		t := tar.NewWriter(w)
		h := &entry{Typeflag: tar.TypeReg, Mode: 0o644}
		for range 1<<20 + 1 {
			h.Name = "same"
			if err := t.WriteHeader(h); err != nil {
				return err
			}
		}
		return nil
	})
	return layers, err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// bomb packs what write writes.
func bomb(write func(io.Writer) error) (v1.Layer, error) {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(write(z), z.Close()); err != nil {
		return nil, err
	}
	return static.NewLayer(out.Bytes(), types.OCILayerZStd), nil
}

func appendLayer(i v1.Image, l v1.Layer) (v1.Image, error) { return mutate.AppendLayers(i, l) }
