package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

type sifPart struct {
	kind, fs, part uint32
	arch           string
	data           []byte
}

func partition(data []byte) sifPart {
	return sifPart{sifPartition, sifSquashfs, sifPrimarySystem, "02", data}
}

var someSquashfs = append([]byte("hsqs"), make([]byte, 4092)...)

// makeSIF writes a file as Apptainer does.
func makeSIF(parts ...sifPart) []byte {
	le := binary.LittleEndian
	head := make([]byte, sifHeader)
	copy(head, "#!/usr/bin/env run-singularity\n")
	copy(head[32:], SIFMagic+"01\x0002\x00")
	le.PutUint64(head[80:], 1)
	le.PutUint64(head[88:], uint64(len(parts)+1))
	le.PutUint64(head[96:], sifHeader)
	le.PutUint64(head[104:], uint64(len(parts)+1)*sifDescriptor)
	b := append(head, make([]byte, (len(parts)+1)*sifDescriptor)...)
	for i, p := range parts {
		d := make([]byte, sifDescriptor)
		le.PutUint32(d, p.kind)
		d[4] = 1
		le.PutUint64(d[17:], uint64(len(b)))
		le.PutUint64(d[25:], uint64(len(p.data)))
		extra := d[sifDescriptor-384:]
		le.PutUint32(extra, p.fs)
		le.PutUint32(extra[4:], p.part)
		copy(extra[8:], p.arch)
		copy(b[sifHeader+i*sifDescriptor:], d)
		b = append(b, p.data...)
	}
	return b
}

func TestReadSIF(t *testing.T) {
	b := makeSIF(sifPart{kind: 0x4001, data: []byte("Bootstrap: docker\n")},
		sifPart{kind: sifLabels, data: []byte(`{"org.label-schema.name":"x"}`)}, partition(someSquashfs))
	s, err := ReadSIF(bytes.NewReader(b), int64(len(b)))
	if err != nil || s.Size != 4096 || string(b[s.Offset:s.Offset+4]) != "hsqs" ||
		s.Config.Labels["org.label-schema.name"] != "x" || len(s.Config.Command()) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	change := func(at int, with ...byte) []byte {
		c := bytes.Clone(b)
		copy(c[at:], with)
		return c
	}
	const third = sifHeader + 2*sifDescriptor
	big := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}
	other := func(p sifPart, change func(*sifPart)) []byte { change(&p); return makeSIF(p) }
	for name, bad := range map[string][]byte{
		"empty": nil, "short": b[:100], "magic": change(32, 'X'), "version": change(42, '0', '9'),
		"descriptors": change(88, 0xff, 0xff, 0xff), "offset": change(96, big...), "length": change(104, big...),
		"part's offset": change(third+17, big...), "part's size": change(third+25, big...),
		"cut short": b[:len(b)-1], "cut in the list": b[:300],
		"no partition": makeSIF(), "negative": change(third+17, bytes.Repeat([]byte{0xff}, 8)...),
		"two":       makeSIF(partition(someSquashfs), partition(someSquashfs)),
		"encrypted": other(partition(someSquashfs), func(p *sifPart) { p.fs = sifEncrypted }),
		"ext3":      other(partition(someSquashfs), func(p *sifPart) { p.fs = 2 }),
		"arm":       other(partition(someSquashfs), func(p *sifPart) { p.arch = "04" }),
		"no squash": other(partition(someSquashfs), func(p *sifPart) { p.data = make([]byte, 4096) }),
	} {
		var known *farm.Error
		if _, err := ReadSIF(bytes.NewReader(bad), int64(len(bad))); !errors.As(err, &known) ||
			known.Code != farm.CodeBadImage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadSIF(f *testing.F) {
	f.Add(makeSIF(partition(someSquashfs[:96])))
	f.Add(makeSIF(sifPart{kind: sifLabels, data: []byte(`{}`)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadSIF(bytes.NewReader(b), int64(len(b)))
		if err == nil && (s.Offset < 0 || s.Size < 0 || s.Offset+s.Size > int64(len(b))) {
			t.Errorf("%+v of %d", s, len(b))
		}
	})
}
