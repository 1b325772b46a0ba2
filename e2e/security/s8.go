package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

const (
	chainedLinks = 39
	filesBehind  = 60000
	mostImageCPU = 20 * time.Second // that a layer of some hundred kilobytes may take
)

// longLinks has an image with files behind symbolic links of many parts imported.
func longLinks(ctx context.Context, s *site) error {
	return s.smallLayer(ctx, "links", func(add func(tar.Header) error) error {
		for n := range chainedLinks {
			to := fmt.Sprintf("l%d", n+1)
			if n == chainedLinks-1 {
				to = "a"
			}
			link := tar.Header{Name: fmt.Sprintf("l%d", n), Typeflag: tar.TypeSymlink,
				Linkname: strings.Repeat("a/../", 800) + to}
			if err := add(link); err != nil {
				return err
			}
		}
		for n := range filesBehind {
			if err := add(tar.Header{Name: fmt.Sprintf("l0/%d", n), Typeflag: tar.TypeReg}); err != nil {
				return err
			}
		}
		return nil
	})
}

// hiddenAgain has an image imported whose layer hides a directory of many files again and again.
func hiddenAgain(ctx context.Context, s *site) error {
	return s.smallLayer(ctx, "hidden", func(add func(tar.Header) error) error {
		for n := range filesBehind {
			if err := add(tar.Header{Name: fmt.Sprintf("d/%d", n), Typeflag: tar.TypeReg}); err != nil {
				return err
			}
		}
		for range filesBehind {
			if err := add(tar.Header{Name: "d/.wh..wh..opq", Typeflag: tar.TypeReg}); err != nil {
				return err
			}
		}
		return nil
	})
}

// smallLayer has an image of one layer imported, and looks how much CPU time the agent needs.
func (s *site) smallLayer(ctx context.Context, name string, fill func(add func(tar.Header) error) error) error {
	l, err := s.start(ctx, lab.Options{NoImage: true})
	if err != nil {
		return err
	}
	dir := s.path("s8-" + name)
	if err := writeLayout(dir, fill); err != nil {
		return err
	}
	before, err := cpuOf(l.AgentPID())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := l.Client.MakeImage(ctx, api.ImageRequest{Name: name, Source: "oci-layout:" + dir}, func(string) {})
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "steps") {
				return fmt.Errorf("the image is not refused for its names and links: %w", err)
			}
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		now, err := cpuOf(l.AgentPID())
		if err != nil {
			return err
		}
		if now-before > mostImageCPU {
			return breach("a small layer takes more than %v of a core", mostImageCPU)
		}
	}
}

// writeLayout writes an OCI layout whose image has one layer.
func writeLayout(dir string, fill func(add func(tar.Header) error) error) error {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	w := tar.NewWriter(zipped)
	err := fill(func(h tar.Header) error {
		h.Mode = 0o644
		return w.WriteHeader(&h)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(packed.Bytes(), types.OCILayer))
	if err != nil {
		return err
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return to.AppendImage(image)
}

// cpuOf is the CPU time that a process has had.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const ticks = 100 // a second, on every architecture of ours
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("process %d has no times", pid)
	}
	sum := time.Duration(0)
	for _, field := range f[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum, nil
}
