package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestRoot makes roots of every mode from images of both formats: each has what the image has, is as large as was asked
// for, and only an overlay reads the image.
func TestRoot(t *testing.T) {
	p := testPool(t)
	dir := t.TempDir()
	raw, qcow := filepath.Join(dir, "base.raw"), filepath.Join(dir, "base.qcow2")
	text := bytes.Repeat([]byte("grange"), 1<<18)
	if err := os.WriteFile(raw, text, 0o444); err != nil {
		t.Fatal(err)
	}
	tool(t, "/usr/bin/qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow)
	const size = 64 * farm.MiB
	for _, base := range []Base{{raw, "raw", farm.Bytes(len(text))}, {qcow, "qcow2", farm.Bytes(len(text))}} {
		for mode, format := range map[farm.RootMode]string{farm.RootOverlay: "qcow2", farm.RootClone: "qcow2",
			farm.RootRaw: "raw"} {
			root, err := p.Root(t.Context(), "vm", base, mode, size)
			if err != nil {
				t.Fatal(err)
			}
			if root.Format != format || (root.Base != "") != (mode == farm.RootOverlay) {
				t.Errorf("%v: %+v", mode, root)
			}
			info := tool(t, "/usr/bin/qemu-img", "info", "-f", format, "--output=json", root.Path)
			if !strings.Contains(info, `"virtual-size": 67108864`) ||
				strings.Contains(info, "backing-filename\"") != (root.Base != "") {
				t.Errorf("%v of a %s: %s", mode, base.Format, info)
			}
			copied := filepath.Join(t.TempDir(), "copy")
			tool(t, "/usr/bin/qemu-img", "convert", "-f", format, "-O", "raw", root.Path, copied)
			if got, err := os.ReadFile(copied); err != nil || !bytes.HasPrefix(got, text) || len(got) != int(size) {
				t.Errorf("%v of a %s does not show the image: %v", mode, base.Format, err)
			}
			if f, err := os.Stat(root.Path); err != nil || f.Mode().Perm() != 0o600 {
				t.Error(f.Mode(), err)
			}
			if _, err := p.Root(t.Context(), "vm", base, mode, size); err == nil {
				t.Errorf("%v: made twice", mode)
			}
			if names, err := p.disks("vm"); err != nil || len(names) != 1 {
				t.Errorf("%v: the directory has %q, %v", mode, names, err)
			}
			if err := p.Remove("vm"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if info, err := os.Stat(raw); err != nil || info.Mode().Perm() != 0o444 {
		t.Error("the image was changed:", info, err)
	}
}

// TestRootFails: what cannot be made leaves nothing, in the middle of a copy too.
func TestRootFails(t *testing.T) {
	p := testPool(t)
	bad := filepath.Join(t.TempDir(), "bad.qcow2")
	if err := os.WriteFile(bad, []byte("QFI\xfb and nothing that qemu-img would take"), 0o444); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []farm.RootMode{farm.RootClone, farm.RootRaw} {
		_, err := p.Root(t.Context(), "vm", Base{bad, "qcow2", farm.MiB}, mode, 0)
		wantCode(t, err, farm.CodeDiskTool)
		_, err = p.Root(t.Context(), "vm", Base{bad, "qcow2", farm.GiB}, mode, farm.MiB)
		wantCode(t, err, farm.CodeTooBig)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Root(ctx, "vm", Base{bad, "raw", farm.MiB}, mode, 0); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	wantEmpty(t, p)
}
