package imagelab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/apptainer/sif/v2/pkg/sif"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// AddToLayout adds an image to an OCI layout, which is made if it is missing.
func AddToLayout(dir, tag string, image v1.Image) error {
	p, err := layout.FromPath(dir)
	if errors.Is(err, os.ErrNotExist) {
		p, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return err
	}
	return p.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}))
}

// LayoutOf makes an OCI layout with one image of one layer, a tar, by umoci.
func LayoutOf(ctx context.Context, dir, tag, tar string, config ...string) error {
	image := dir + ":" + tag
	return errors.Join(run(ctx, "umoci", "init", "--layout", dir), run(ctx, "umoci", "new", "--image", image),
		run(ctx, "umoci", "raw", "add-layer", "--image", image, tar),
		run(ctx, "umoci", append([]string{"config", "--image", image}, config...)...))
}

// Bundle is an image as umoci unpacks it for a container runtime.
type Bundle struct {
	Tree string
	Args []string
	Env  []string
	Dir  string
}

// Unpack has umoci make the bundle of an image in a layout: what a runtime would run, and where.
func Unpack(ctx context.Context, layout, tag, dir string) (Bundle, error) {
	b := Bundle{Tree: filepath.Join(dir, "rootfs")}
	if err := run(ctx, "umoci", "unpack", "--image", layout+":"+tag, dir); err != nil {
		return b, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return b, err
	}
	var c struct {
		Process struct {
			Args, Env []string
			Cwd       string
		}
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return b, err
	}
	b.Args, b.Env, b.Dir = c.Process.Args, c.Process.Env, c.Process.Cwd
	return b, nil
}

// WriteSIF packs a tree into a SIF file as Apptainer does: a squashfs, by mksquashfs, in a container of Apptainer's own
// library.
func WriteSIF(ctx context.Context, tree, file string) error {
	squashfs := file + ".squashfs"
	defer os.Remove(squashfs)
	if err := run(ctx, "mksquashfs", tree, squashfs, "-quiet", "-no-progress", "-noappend"); err != nil {
		return err
	}
	f, err := os.Open(squashfs)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := sif.NewDescriptorInput(sif.DataPartition, f,
		sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, "amd64"))
	if err != nil {
		return err
	}
	image, err := sif.CreateContainerAtPath(file, sif.OptCreateDeterministic(), sif.OptCreateWithDescriptors(root),
		sif.OptCreateWithLaunchScript("#!/usr/bin/env run-singularity\n"))
	if err != nil {
		return fmt.Errorf("SIF file: %w", err)
	}
	return image.UnloadContainer()
}
