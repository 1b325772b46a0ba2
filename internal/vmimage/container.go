package vmimage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/grange-project/grange/internal/container"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/imagesource"
)

// openSource opens what Fetch is asked for: a file, or, where it is nil, an image that is not one file.
func openSource(o FetchOptions) (imagesource.Source, container.Reference, error) {
	if !container.Is(o.Source) {
		source, err := imagesource.Open(o.Source, o.Outside)
		return source, container.Reference{}, err
	}
	r, err := container.Parse(o.Source)
	if err != nil {
		return nil, r, err
	}
	file, ok := r.IsSIF()
	if !ok {
		return nil, r, nil
	}
	source, err := imagesource.Resolved(file, o.Resolve)
	return imagesource.Bounded(source), r, err
}

// byReference finds what Fetch brought for a reference, under its own name or another one.
func (s *Store) byReference(ref string) (Image, error) {
	r, err := container.Parse(ref)
	if err != nil {
		return Image{}, err
	}
	i, err := s.byName(r.ImageName())
	if !errors.Is(err, fs.ErrNotExist) {
		return i, err
	}
	all, _ := s.List()
	for _, i := range all {
		if i.Source == ref {
			return i, nil
		}
	}
	return Image{}, noImage(ref, err)
}

// FetchReference brings the container image that a reference, o.Source, means now into the store, under the name that
// the reference has there: Get and Acquire find it by the reference from then on. Errors: those of Fetch.
func (s *Store) FetchReference(ctx context.Context, o FetchOptions) (Image, error) {
	r, err := container.Parse(o.Source)
	if err != nil {
		return Image{}, err
	}
	o.Name = r.ImageName()
	return s.Fetch(ctx, o)
}

// buildRoot brings a container image that is not one file.
func (f *fetch) buildRoot(ctx context.Context, r container.Reference, dir *os.Root) (Image, error) {
	if f.Sum != "" || f.Sums != "" {
		return Image{}, badImage("a container image has no checksum of a file",
			"write its digest into the reference: oci://REGISTRY/NAME@sha256:…", nil)
	}
	limit, err := f.limit(dir)
	if err != nil {
		return Image{}, err
	}
	d, err := f.store.newDraft()
	if err != nil {
		return Image{}, err
	}
	defer d.discard()
	const name = rootFile + "erofs"
	file, err := d.work(name)
	if err != nil {
		return Image{}, err
	}
	came := f.store.pace.Follow(ctx)
	built, err := container.Build(ctx, r, file, container.Options{Dir: dir, Limit: int64(limit), Resolve: f.Resolve,
		Outside: f.Outside,
		Report: func(step string, done, total int64) {
			if step == "download" {
				came(done)
			}
			f.Progress(Progress{Step: step, Done: farm.Bytes(done), Total: farm.Bytes(total)})
		}})
	if err != nil {
		return Image{}, writeError(f.store.dir, err)
	}
	if err := d.sum(ctx, file, name); err != nil {
		return Image{}, err
	}
	d.image.Kind, d.image.Format, d.image.Config = Root, "erofs", &built.Config
	d.image.Description, d.image.Source, d.image.SourceSum = "fetched from "+f.Source, f.Source, built.Digest
	return d.commit(f.Name)
}

// sum adds a file that lies in the draft already to the image.
func (d *draft) sum(ctx context.Context, f *os.File, name string) error {
	info, err := f.Stat()
	if err != nil {
		return storeError(d.store.dir, err)
	}
	h := sha256.New()
	from := readerWithContext{ctx, io.NewSectionReader(f, 0, info.Size())}
	if _, err := io.CopyBuffer(h, from, make([]byte, copyBlock)); err != nil {
		return writeError(d.store.dir, err)
	}
	return d.finish(f, name, info.Size(), h.Sum(nil))
}

// importSIF takes the root file system out of a SIF file. Nobody on this host reads it: it is a squashfs, of which the
// kernels of VMs make what they can.
func (d *draft) importSIF(ctx context.Context, in input, progress func(done, total farm.Bytes)) error {
	sif, err := container.ReadSIF(in, in.size)
	if err != nil {
		return err
	}
	left, err := free(d.store)
	if err != nil || left < spare+farm.Bytes(sif.Size) {
		return writeError(d.store.dir, errors.Join(err, syscall.ENOSPC))
	}
	const name = rootFile + "squashfs"
	to, err := d.work(name)
	if err != nil {
		return err
	}
	part := io.NewSectionReader(in, sif.Offset, sif.Size)
	from := readerWithContext{ctx, &progressReader{part, 0, sif.Size, progress}}
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, copyBlock))
	if err != nil {
		return writeError(d.store.dir, err)
	}
	if n != sif.Size {
		return badImage("the file became shorter while it was read", "import it when nothing writes to it any more",
			nil)
	}
	const page = 4096 // a disk has whole sectors
	if err := to.Truncate((n + page - 1) &^ (page - 1)); err != nil {
		return writeError(d.store.dir, err)
	}
	d.image.Kind, d.image.Format, d.image.Config = Root, "squashfs", &sif.Config
	return d.sum(ctx, to, name)
}

// progressReader reports how much was read.
type progressReader struct {
	io.Reader
	done, total int64
	progress    func(done, total farm.Bytes)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.done += int64(n)
	p.progress(farm.Bytes(p.done), farm.Bytes(p.total))
	return n, err
}

// Kernel returns the image whose kernel VMs of an image start with, which stays until release is called: of a
// container's that is the micro image. Error: CodeRootKernel.
func (s *Store) Kernel(i Image) (kernel Image, release func(), err error) {
	if i.Kind != Root {
		return i, func() {}, nil
	}
	kernel, release, err = s.Acquire(MicroName)
	if err == nil && kernel.Kind != Kernel {
		release()
		err = fmt.Errorf("its kind is %s", kernel.Kind)
	}
	if err != nil {
		return kernel, nil, NoKernel("which cannot be used", err)
	}
	return kernel, release, nil
}

// NoKernel is the error of container images that have nothing to start with.
func NoKernel(why string, err error) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeRootKernel,
		Message: fmt.Sprintf("container images start with the kernel of image %q, %s", MicroName, why),
		Hint:    "build it: `grange image build micro`", Err: err}
}

// CheckSystem refuses a container's image for a VM that needs a system of its own. Error: CodeImageKind.
func (i Image) CheckSystem(who string) error {
	if i.Kind != Root {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeImageKind,
		Message: fmt.Sprintf("image %q is a container's, which runs jobs: %s needs a disk, or a kernel and an initrd",
			i.Name, who), Hint: "see KIND in `grange image list`"}
}
