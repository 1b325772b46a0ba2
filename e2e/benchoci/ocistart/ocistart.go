// Package ocistart measures what a container image adds to the start of a job: the cached start of an image that
// nobody changed for grange, from a registry, a SIF file and an unpacked directory, in turns with the micro image's.
package ocistart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/images/imagelab"
	"github.com/grange-project/grange/e2e/lab"
)

// Figures are medians of rounds; a ratio is that of one round's starts, beside each other.
type Figures struct {
	OCIRatio float64 `json:"oci_start_ratio"`
	SIFRatio float64 `json:"sif_start_ratio"`
	DirRatio float64 `json:"dir_start_ratio"`
	MicroMS  float64 `json:"micro_start_ms"`
	OCIMS    float64 `json:"oci_start_ms"`
	SIFMS    float64 `json:"sif_start_ms"`
	DirMS    float64 `json:"dir_start_ms"`
	// JobMS is a start whose job imports numpy, and computes with it.
	JobMS       float64            `json:"oci_numpy_ms"`
	Rounds      int                `json:"rounds"`
	ImageBytes  int64              `json:"image_bytes"`
	Phases      map[string]float64 `json:"oci_phases"` // milliseconds
	MicroPhases map[string]float64 `json:"micro_phases"`
}

// numpy is a job, and what it prints.
const (
	numpy  = "import numpy as n; print(int(n.arange(1000).reshape(10, 100).sum(axis=1).dot(n.ones(10))))"
	answer = "499500\n"
)

// image is one place of the image.
type image struct {
	name, ref string
	took      []float64
	ratios    []float64
}

// Measure publishes the image and measures. The lab has a micro image, and nothing else to do.
func Measure(ctx context.Context, l *lab.Lab, rounds int) (Figures, error) {
	f := Figures{Rounds: rounds, Phases: map[string]float64{}, MicroPhases: map[string]float64{}}
	dir := filepath.Join(l.Dir, "oci")
	images, done, err := publish(ctx, dir)
	if err != nil {
		return f, err
	}
	defer done()
	if info, err := os.Stat(filepath.Join(dir, "root.tar")); err == nil {
		f.ImageBytes = info.Size()
	}
	for _, i := range images { // fetched, and once started
		took, err := job(ctx, l, i.ref)
		if err != nil {
			return f, fmt.Errorf("%s: %w", i.name, err)
		}
		fmt.Printf("%s: fetched, and numpy ran, in %.0f ms\n", i.name, took)
	}
	if f.JobMS, err = job(ctx, l, images[0].ref); err != nil {
		return f, err
	}
	if _, err := start(ctx, l, "micro", nil); err != nil {
		return f, err
	}
	micro, phases, ociPhases := []float64{}, map[string][]float64{}, map[string][]float64{}
	for n := range rounds {
		before, err := start(ctx, l, "micro", phases)
		if err != nil {
			return f, err
		}
		for k := range images { // each has each place in turn
			i := images[(n+k)%len(images)]
			into := map[string][]float64(nil)
			if i == images[0] {
				into = ociPhases
			}
			took, err := start(ctx, l, i.ref, into)
			if err != nil {
				return f, err
			}
			after, err := start(ctx, l, "micro", phases)
			if err != nil {
				return f, err
			}
			i.took, i.ratios = append(i.took, took), append(i.ratios, 2*took/(before+after))
			micro, before = append(micro, after), after
			fmt.Printf("round %d: %s %.0f ms, micro %.0f ms, ratio %.3f\n", n+1, i.name, took, after,
				i.ratios[len(i.ratios)-1])
		}
	}
	f.MicroMS = median(micro)
	f.OCIMS, f.OCIRatio = median(images[0].took), median(images[0].ratios)
	f.SIFMS, f.SIFRatio = median(images[1].took), median(images[1].ratios)
	f.DirMS, f.DirRatio = median(images[2].took), median(images[2].ratios)
	for name, values := range phases {
		f.MicroPhases[name] = median(values)
	}
	for name, values := range ociPhases {
		f.Phases[name] = median(values)
	}
	return f, nil
}

// publish makes a Debian with Python and numpy, of packages, and publishes it: by umoci and skopeo in Debian's
// registry, as a SIF file and as umoci unpacks it.
func publish(ctx context.Context, dir string) (images []*image, done func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	fmt.Println("building a Debian with python3 and numpy, of packages")
	tar, layout, sif := filepath.Join(dir, "root.tar"), filepath.Join(dir, "layout"), filepath.Join(dir, "debian.sif")
	if err := imagelab.DebianTar(ctx, tar, "python3", "python3-numpy"); err != nil {
		return nil, nil, err
	}
	err = imagelab.LayoutOf(ctx, layout, "1", tar, "--config.cmd", "python3", "--config.env", "LANG=C.UTF-8")
	if err != nil {
		return nil, nil, err
	}
	bundle, err := imagelab.Unpack(ctx, layout, "1", filepath.Join(dir, "bundle"))
	if err != nil {
		return nil, nil, err
	}
	if err := imagelab.WriteSIF(ctx, bundle.Tree, sif); err != nil {
		return nil, nil, err
	}
	r, err := imagelab.StartRegistry(ctx, filepath.Join(dir, "registry"), imagelab.RegistryOptions{})
	if err != nil {
		return nil, nil, err
	}
	if err := r.Push(ctx, layout, "1", "debian/numpy:1"); err != nil {
		r.Stop()
		return nil, nil, err
	}
	return []*image{{name: "oci", ref: r.Reference("debian/numpy:1")}, {name: "sif", ref: sif},
		{name: "dir", ref: "dir:" + bundle.Tree}}, r.Stop, nil
}

// job runs the job with numpy, and returns how long all of it took.
func job(ctx context.Context, l *lab.Lab, ref string) (float64, error) {
	cmd := l.Exec(ctx, "--image", ref, "--", "python3", "-c", numpy)
	cmd.Dir = "/"
	var messages bytes.Buffer
	cmd.Stderr = &messages
	began := time.Now()
	out, err := cmd.Output()
	if err == nil && string(out) != answer {
		err = fmt.Errorf("it printed %q", out)
	}
	if err != nil {
		return 0, fmt.Errorf("numpy in %s: %w: %s", ref, err, messages.String())
	}
	return milliseconds(time.Since(began)), nil
}

// start runs true, and returns how long the command took; its phases go into.
func start(ctx context.Context, l *lab.Lab, ref string, into map[string][]float64) (float64, error) {
	cmd := l.Exec(ctx, "--json", "--image", ref, "--", "true")
	cmd.Dir = "/"
	var events bytes.Buffer
	cmd.Stderr = &events
	began := time.Now()
	err := cmd.Run()
	took := milliseconds(time.Since(began))
	if err != nil {
		return 0, fmt.Errorf("true in %s: %w: %s", ref, err, events.String())
	}
	if into == nil {
		return took, nil
	}
	for line := range strings.Lines(events.String()) {
		var e struct {
			Phase  *api.Phase
			Phases []api.Phase
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		if e.Phase != nil {
			e.Phases = append(e.Phases, *e.Phase)
		}
		for _, p := range e.Phases {
			into[p.Name] = append(into[p.Name], p.Milliseconds)
		}
	}
	return took, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
